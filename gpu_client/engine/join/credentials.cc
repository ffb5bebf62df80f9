#include "gpu_client/engine/join/credentials.h"

#include <cstdlib>
#include <span>

#include "config/secret_file.h"
#include "core/log.h"
#include "wire/handshake.h"

namespace sluice::engine {
namespace {

std::string tls_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<std::optional<wire::Digest>> load_token(const std::string& key_file, const std::string& token_file,
                                               const std::string& job) {
  if (key_file.empty() && token_file.empty()) return std::optional<wire::Digest>();
  if (!key_file.empty() && !token_file.empty()) {
    return fail(Errc::kInvalidArgument,
                "key_file and token_file are both set; set only one, the token is derived from the key");
  }
  auto file = config::read_secret_file(key_file.empty() ? token_file : key_file);
  if (!file) return tl::unexpected(file.error());
  // Logged as information: a library must not print, and the default sink prints warnings.
  if (!file->warning.empty()) log::info(file->warning);
  if (key_file.empty()) return std::optional<wire::Digest>(file->secret);
  return std::optional<wire::Digest>(wire::job_token(std::as_bytes(std::span(file->secret)), job));
}

Result<std::shared_ptr<const TlsSettings>> read_tls_settings() {
  const std::string mode = tls_variable("SLUICE_TLS");
  if (mode.empty() || mode == "off") return std::shared_ptr<const TlsSettings>();
  if (mode != "on" && mode != "require") {
    return fail(Errc::kInvalidArgument,
                "variable SLUICE_TLS: expected off, on or require, found \"" + mode + "\"");
  }
  const transport::tcp::TlsFiles files{.certificate = tls_variable("SLUICE_TLS_CERT"),
                                       .key = tls_variable("SLUICE_TLS_KEY"),
                                       .ca = tls_variable("SLUICE_TLS_CA")};
  auto context = transport::tcp::TlsContext::make(false, files);
  if (!context) return add_context("variable SLUICE_TLS", context.error());
  return std::make_shared<const TlsSettings>(
      TlsSettings{.required = mode == "require", .context = std::move(*context)});
}

}  // namespace sluice::engine
