// Loading of a job's token, from a token file or derived from the pool key and the job name.
#pragma once

#include <optional>
#include <string>

#include "core/result.h"
#include "wire/sha256.h"

namespace sluice::engine {

// At most one path may be set; with neither set there is no token. Returns kInvalidArgument or kSystem, with
// the path.
[[nodiscard]] Result<std::optional<wire::Digest>> load_token(const std::string& key_file,
                                                             const std::string& token_file,
                                                             const std::string& job);

}  // namespace sluice::engine
