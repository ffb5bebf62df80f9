// usage: cxx_client [OPTION=VALUE...]: opens a session of one rank with these options of class Options and
// the reducers of SLUICE_REDUCERS. Prints the error.
#include <cstdio>
#include <map>
#include <sluice/sluice.hpp>
#include <string>

int main(int count, char** arguments) {
  sluice::client::Options options;
  options.session_id[0] = 2;
  struct Field {
    std::string& text;
    const char*& raw;
  };
  sluice_options& raw = options.raw;
  const std::map<std::string, Field> fields = {{"job", {options.job, raw.job}},
                                               {"tenant", {options.tenant, raw.tenant}},
                                               {"key_file", {options.key_file, raw.key_file}},
                                               {"token_file", {options.token_file, raw.token_file}},
                                               {"tls", {options.tls, raw.tls}},
                                               {"tls_ca", {options.tls_ca, raw.tls_ca}},
                                               {"tls_cert", {options.tls_cert, raw.tls_cert}},
                                               {"tls_key", {options.tls_key, raw.tls_key}}};
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const auto equals = argument.find('=');
    const auto field = fields.find(argument.substr(0, equals));
    if (equals == argument.npos || field == fields.end()) return 2;
    field->second.text = argument.substr(equals + 1);
    if (field->second.text.empty()) field->second.raw = "";  // as the header says
  }
  try {
    sluice::client::Session session(options);
    session.close();
  } catch (const sluice::client::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
