#include "gpu_client/engine/join/credentials.h"

#include <cstdlib>
#include <span>
#include <utility>

#include "config/secret_file.h"
#include "core/log.h"
#include "gpu_client/engine/join/handshake.h"
#include "wire/handshake.h"
#include "wire/message_limits.h"

namespace sluice::engine {
namespace {

// A value, and the option or variable that it comes from.
struct Value {
  std::string text;
  std::string source;
};

Value read_value(const char* option, const char* name, const char* variable) {
  if (option != nullptr) return {option, name};
  const char* const value = std::getenv(variable);
  return {value != nullptr ? value : "", variable};
}

// An option for one value of a pair replaces the variables of both.
void complete_pair(const char*& one, const char*& other) {
  if (one != nullptr && other == nullptr) other = "";
  if (other != nullptr && one == nullptr) one = "";
}

Result<std::string> short_name(Value value) {
  if (value.text.size() <= wire::kMaxJobText) return std::move(value.text);
  return invalid(value.source + " has " + std::to_string(value.text.size()) + " characters; the limit is " +
                 std::to_string(wire::kMaxJobText));
}

// Returns nothing if there is neither a key nor a token.
Result<std::optional<wire::Digest>> read_token(CredentialOptions o, const std::string& job) {
  complete_pair(o.key_file, o.token_file);
  const Value key = read_value(o.key_file, "key_file", "SLUICE_KEY_FILE");
  const Value token = read_value(o.token_file, "token_file", "SLUICE_TOKEN_FILE");
  if (!key.text.empty() && !token.text.empty())
    return invalid(key.source + " and " + token.source +
                   " are both set; set only one, the token is derived from the key");
  const Value& path = key.text.empty() ? token : key;
  if (path.text.empty()) return std::optional<wire::Digest>();
  auto file = config::read_secret_file(path.text);
  if (!file) return add_context(path.source, file.error());
  // Logged as information: a library must not print, and the default sink prints warnings.
  if (!file->warning.empty()) log::info(file->warning);
  if (key.text.empty()) return std::optional<wire::Digest>(file->secret);
  return std::optional<wire::Digest>(wire::job_token(std::as_bytes(std::span(file->secret)), job));
}

}  // namespace

Result<void> read_credentials(const CredentialOptions& options, Identity& identity) {
  SLUICE_ASSIGN_OR_RETURN(job, short_name(read_value(options.job, "job", "SLUICE_JOB")));
  SLUICE_ASSIGN_OR_RETURN(tenant, short_name(read_value(options.tenant, "tenant", "SLUICE_TENANT")));
  if (job.empty()) job = "default";
  SLUICE_ASSIGN_OR_RETURN(token, read_token(options, job));
  SLUICE_ASSIGN_OR_RETURN(tls, read_tls_settings(options));
  identity.job = std::move(job);
  identity.tenant = std::move(tenant);
  identity.token = token;
  identity.tls = std::move(tls);
  return {};
}

Result<std::shared_ptr<const TlsSettings>> read_tls_settings(const CredentialOptions& options) {
  CredentialOptions o = options;
  complete_pair(o.tls_cert, o.tls_key);
  const Value mode = read_value(o.tls, "tls", "SLUICE_TLS");
  const Value ca = read_value(o.tls_ca, "tls_ca", "SLUICE_TLS_CA");
  const Value certificate = read_value(o.tls_cert, "tls_cert", "SLUICE_TLS_CERT");
  const Value key = read_value(o.tls_key, "tls_key", "SLUICE_TLS_KEY");
  if (mode.text.empty() && o.tls == nullptr) {
    for (const Value* file : {&ca, &certificate, &key}) {
      if (!file->text.empty())
        return invalid(file->source + " is set, but TLS is not switched on; set SLUICE_TLS=require, or " +
                       "SLUICE_TLS=off to run without TLS");
    }
  }
  if (mode.text.empty() || mode.text == "off") return std::shared_ptr<const TlsSettings>();
  if (mode.text != "on" && mode.text != "require")
    return invalid(mode.source + ": expected off, on or require, found \"" + mode.text + "\"");
  if (!key.text.empty() && certificate.text.empty())
    return invalid(key.source + " is set without " + (o.tls_key == nullptr ? "SLUICE_TLS_CERT" : "tls_cert") +
                   ", the certificate of this key");
  auto context = transport::tcp::TlsContext::make(
      false, {.certificate = certificate.text, .key = key.text, .ca = ca.text});
  if (!context) return add_context(mode.source + "=" + mode.text, context.error());
  return std::make_shared<const TlsSettings>(
      TlsSettings{.required = mode.text == "require", .ca = ca.text, .context = std::move(*context)});
}

}  // namespace sluice::engine
