// The pool's key at the reducer: read once at start, seen by nobody but the conductor's handshakes.
#pragma once

#include <optional>
#include <string>

#include "config/secret_file.h"
#include "core/result.h"
#include "wire/sha256.h"

namespace sluice::reducer {

class KeyStore {
 public:
  // No key: no authentication.
  KeyStore() = default;
  // The error names the path. A key that everybody may read is a warning in the log.
  [[nodiscard]] static Result<KeyStore> load(const std::string& path);

  [[nodiscard]] bool has_key() const noexcept { return key_.has_value(); }
  // The token that a worker of `job` must hold. Only with a key.
  [[nodiscard]] wire::Digest token_for(const std::string& job) const;

 private:
  std::optional<config::Secret> key_;
};

}  // namespace sluice::reducer
