// Expands Slurm's compressed host lists: "a[1-3,07-09],b,c[0-1]n[2-3]".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config::discovery {

// Larger than any cluster. The limit is needed because a list of a few bytes can denote billions of hosts.
inline constexpr size_t kMaxHosts = 65536;

// Returns the hosts in the order of the list; the last bracket of a name varies fastest: a1 a2 a3 a07 a08 a09
// b c0n2 c0n3 c1n2 c1n3. Numbers keep the leading zeros of the start of their range. Errors are
// kInvalidArgument and begin with "column N: ". Nothing is expanded beyond kMaxHosts.
[[nodiscard]] Result<std::vector<std::string>> expand_hostlist(std::string_view text);

}  // namespace sluice::config::discovery
