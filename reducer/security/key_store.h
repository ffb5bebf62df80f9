// Class KeyStore holds the pool's key, which authenticates connections during the handshake. Read once, at
// start.
#pragma once

#include <optional>
#include <string>

#include "config/secret_file.h"
#include "core/result.h"
#include "wire/sha256.h"

namespace sluice::reducer {

class KeyStore {
 public:
  // Without a key there is no authentication.
  KeyStore() = default;
  // The error names the file. Logs a warning if other users may read the file.
  [[nodiscard]] static Result<KeyStore> load(const std::string& path);

  [[nodiscard]] bool has_key() const noexcept { return key_.has_value(); }
  // The token of the workers of `job`. Requires a key.
  [[nodiscard]] wire::Digest token_for(const std::string& job) const;

 private:
  std::optional<config::Secret> key_;
};

}  // namespace sluice::reducer
