// Where a job's token comes from: the token itself in a file, or the pool's key and the job id.
#pragma once

#include <optional>
#include <string>

#include "core/result.h"
#include "wire/sha256.h"

namespace sluice::engine {

// At most one of the two paths may be set; both empty: no token. kInvalidArgument or kSystem, with the path.
[[nodiscard]] Result<std::optional<wire::Digest>> load_token(const std::string& key_file,
                                                             const std::string& token_file,
                                                             const std::string& job);

}  // namespace sluice::engine
