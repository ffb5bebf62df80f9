// Describes the build of this program.
#pragma once

#include <string>

namespace sluice::cli {

// Returns the output of `sluice --version`: version, revision, protocol range, compiler, kernel targets of
// this CPU.
[[nodiscard]] std::string version_text();
// Returns "gcc 12.2.0".
[[nodiscard]] std::string compiler_text();

}  // namespace sluice::cli
