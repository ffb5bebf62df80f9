// Slurm's way to write many hosts: "a[1-3,07-09],b,c[0-1]n[2-3]".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config::discovery {

// More than any cluster has; a list may be a few bytes and mean as many hosts as one likes.
inline constexpr size_t kMaxHosts = 65536;

// In the order written, the last bracket of a name counting fastest: a1 a2 a3 a07 a08 a09 b c0n2 c0n3 c1n2
// c1n3. A number keeps the zeros in front of its range's first one. Errors are kInvalidArgument and begin
// with "column N: ". Nothing is expanded beyond kMaxHosts.
[[nodiscard]] Result<std::vector<std::string>> expand_hostlist(std::string_view text);

}  // namespace sluice::config::discovery
