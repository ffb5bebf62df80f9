// Files that a benchmark leaves its results in.
#pragma once

#include <string>

namespace sluice::bench {

// Nothing when `path` is empty. Failure(kExitFailure) when it can't be written.
void save_result(const std::string& path, const std::string& text);

}  // namespace sluice::bench
