#include "cli/options/credential_flags.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::cli {
namespace {

using bench::Failure;

// An option for one file of a pair replaces the variables of both.
struct Exported {
  const char* option;
  const char* variable;
  const char* other_option = nullptr;
  const char* other_variable = nullptr;
};
constexpr std::array<Exported, 8> kExported{
    {{"--job", "SLUICE_JOB"},
     {"--tenant", "SLUICE_TENANT"},
     {"--key-file", "SLUICE_KEY_FILE", "--token-file", "SLUICE_TOKEN_FILE"},
     {"--token-file", "SLUICE_TOKEN_FILE", "--key-file", "SLUICE_KEY_FILE"},
     {"--tls", "SLUICE_TLS"},
     {"--tls-ca", "SLUICE_TLS_CA"},
     {"--tls-cert", "SLUICE_TLS_CERT", "--tls-key", "SLUICE_TLS_KEY"},
     {"--tls-key", "SLUICE_TLS_KEY", "--tls-cert", "SLUICE_TLS_CERT"}}};

// Returns the option if the command line has it, otherwise nullptr.
const DeclaredOption* on_command_line(std::string_view name) {
  for (const auto& set : selected_options()) {
    for (const DeclaredOption& option : set->all) {
      if (option.name == name && option.origin == Origin::kCommandLine) return &option;
    }
  }
  return nullptr;
}

}  // namespace

void CredentialFlags::add_to(OptionSet& set) {
  set.text("--job", job_, "NAME", "job name of the token");
  set.text("--tenant", tenant_, "NAME",
           "tenant whose share and memory of the reducers the command uses; default: the job name");
  set.text("--key-file", key_file_, "FILE", "pool key; alternative to --token-file");
  set.text("--token-file", token_file_, "FILE", "token of --job; alternative to --key-file");
  add_tls_to(set);
}

void CredentialFlags::add_pool_key_to(OptionSet& set) {
  set.text("--key-file", key_file_, "FILE", "pool key");
  set.text("--token-file", token_file_, "FILE", "refused")->group("");
  add_tls_to(set);
}

void CredentialFlags::add_tls_to(OptionSet& set) {
  set.text("--tls", tls_, "MODE",
           "use of TLS. on: if the reducer offers it; require: always. Also applies to reducers started by "
           "this command. Authenticated by the key, or by certificates")
      ->check(CLI::IsMember({"off", "on", "require"}));
  set.text("--tls-ca", tls_ca_, "FILE", "authorities that may sign the reducers' certificates, PEM");
  set.text("--tls-cert", tls_cert_, "FILE", "own certificate, PEM with its chain, for --tls-client-ca");
  set.text("--tls-key", tls_key_, "FILE", "private key of --tls-cert; empty: in the same file");
}

engine::Identity CredentialFlags::identity(const char* job) const {
  if (on_command_line("--key-file") != nullptr && on_command_line("--token-file") != nullptr &&
      !key_file_.empty() && !token_file_.empty())
    throw Failure(bench::kExitUsage, "--key-file and --token-file are mutually exclusive");
  for (const Exported& e : kExported) {
    const DeclaredOption* const option = on_command_line(e.option);
    if (option == nullptr) continue;
    ::setenv(e.variable, option->current().front().c_str(), 1);
    if (e.other_option != nullptr && on_command_line(e.other_option) == nullptr) ::unsetenv(e.other_variable);
  }
  engine::Identity identity;
  if (const auto read = engine::read_credentials({.job = job}, identity); !read) {
    const bool is_unavailable = read.error().code == Errc::kUnsupported;
    throw Failure(is_unavailable ? bench::kExitUnavailable : bench::kExitConfig, read.error().text);
  }
  return identity;
}

}  // namespace sluice::cli
