// Whether a worker's connections go through TLS, and whom it trusts then (docs/security.md).
#pragma once

#include <memory>

#include "core/result.h"
#include "transport/tcp/secure_stream.h"

namespace sluice::engine {

struct TlsTerms {
  bool required = false;  // a reducer that does not offer it is refused
  std::shared_ptr<const transport::tcp::TlsContext> context;
};

// From SLUICE_TLS (off, on, require), SLUICE_TLS_CA, SLUICE_TLS_CERT, SLUICE_TLS_KEY. Nothing: off. Loads the
// library of TLS. kInvalidArgument, kUnsupported, with the variable or the file.
[[nodiscard]] Result<std::shared_ptr<const TlsTerms>> read_tls_variables();

}  // namespace sluice::engine
