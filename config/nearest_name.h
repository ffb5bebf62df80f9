// What somebody may have meant by a name that nobody knows.
#pragma once

#include <span>
#include <string_view>

namespace sluice::config {

// Of `names` the one with the fewest letters to add, drop or change (Levenshtein's distance), the first of
// several; empty when there are none. Letters beyond the 64th don't count.
[[nodiscard]] std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace sluice::config
