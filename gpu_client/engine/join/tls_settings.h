// Struct TlsSettings says whether a worker's connections use TLS, and which peers it trusts
// (docs/guides/secure.md).
#pragma once

#include <memory>

#include "core/result.h"
#include "transport/tcp/secure_stream.h"

namespace sluice::engine {

struct TlsSettings {
  bool required = false;  // a reducer that does not offer TLS is an error
  std::shared_ptr<const transport::tcp::TlsContext> context;
};

// Reads SLUICE_TLS (off, on, require; default off), SLUICE_TLS_CA, SLUICE_TLS_CERT and SLUICE_TLS_KEY, and
// loads the TLS library unless TLS is off. Returns null when TLS is off. Errors are kInvalidArgument and
// kUnsupported, with the variable or the file.
[[nodiscard]] Result<std::shared_ptr<const TlsSettings>> read_tls_settings();

}  // namespace sluice::engine
