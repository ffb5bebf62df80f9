// The pool's key. Read once at start; only this room and the conductor's handshakes see it.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace sluice::reducer {

// Reads 64 hexadecimal digits (what `sluice keygen` writes); white space around them is ignored. The error
// names the path and what is wrong. A file that others may read is accepted with a warning in the log.
[[nodiscard]] Result<std::vector<std::byte>> read_key_file(const std::string& path);

}  // namespace sluice::reducer
