#include "gpu_client/engine/tls_terms.h"

#include <cstdlib>
#include <string>

namespace sluice::engine {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<std::shared_ptr<const TlsTerms>> read_tls_variables() {
  const std::string mode = variable("SLUICE_TLS");
  if (mode.empty() || mode == "off") return std::shared_ptr<const TlsTerms>();
  if (mode != "on" && mode != "require") {
    return fail(Errc::kInvalidArgument, "variable SLUICE_TLS: \"" + mode + "\" is none of off, on, require");
  }
  const transport::tcp::TlsFiles files{.certificate = variable("SLUICE_TLS_CERT"),
                                       .key = variable("SLUICE_TLS_KEY"),
                                       .ca = variable("SLUICE_TLS_CA")};
  auto context = transport::tcp::TlsContext::make(false, files);
  if (!context) return add_context("variable SLUICE_TLS", context.error());
  return std::make_shared<const TlsTerms>(
      TlsTerms{.required = mode == "require", .context = std::move(*context)});
}

}  // namespace sluice::engine
