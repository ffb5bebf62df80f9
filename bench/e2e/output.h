// Where a benchmark's results go: lines on stdout as they come, files at the end.
#pragma once

#include <string>

namespace sluice::bench {

// To stdout, at once: whoever watches a long run sees each line when it is there.
void say(const std::string& text);

// Nothing when `path` is empty. Failure(kExitFailure) when it can't be written.
void save_result(const std::string& path, const std::string& text);

}  // namespace sluice::bench
