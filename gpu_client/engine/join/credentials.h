// The credentials of a worker: the job's token, from a token file or derived from the pool key and the job
// name, and the files and trust of TLS (docs/guides/secure.md).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/result.h"
#include "transport/tcp/secure_stream.h"
#include "wire/sha256.h"

namespace sluice::engine {

// At most one path may be set; with neither set there is no token. Returns kInvalidArgument or kSystem, with
// the path.
[[nodiscard]] Result<std::optional<wire::Digest>> load_token(const std::string& key_file,
                                                             const std::string& token_file,
                                                             const std::string& job);

// Whether a worker's connections use TLS, and which peers it trusts.
struct TlsSettings {
  bool required = false;  // a reducer that does not offer TLS is an error
  std::shared_ptr<const transport::tcp::TlsContext> context;
};

// Reads SLUICE_TLS (off, on, require; default off), SLUICE_TLS_CA, SLUICE_TLS_CERT and SLUICE_TLS_KEY, and
// loads the TLS library unless TLS is off. Returns null when TLS is off. Errors are kInvalidArgument and
// kUnsupported, with the variable or the file.
[[nodiscard]] Result<std::shared_ptr<const TlsSettings>> read_tls_settings();

}  // namespace sluice::engine
