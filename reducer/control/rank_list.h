// rank_list() names ranks in messages for people.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "wire/message_limits.h"

namespace sluice::reducer {

// "rank 3", or "ranks 1, 4 and 9 more"; `ranks` is not empty.
[[nodiscard]] inline std::string rank_list(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), wire::kMaxNamedRanks); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > wire::kMaxNamedRanks)
    text += " and " + std::to_string(ranks.size() - wire::kMaxNamedRanks) + " more";
  return text;
}

}  // namespace sluice::reducer
