#include "gpu_client/engine/join/tls_settings.h"

#include <cstdlib>
#include <string>

namespace sluice::engine {
namespace {

std::string tls_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

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
