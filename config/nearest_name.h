// Finds the known name that is most similar to a misspelled one, for "did you mean" messages.
#pragma once

#include <span>
#include <string_view>

namespace sluice::config {

// Returns the element of `names` with the smallest Levenshtein distance to `name`, the first of equals; empty
// when `names` is empty. Only the first 64 characters count.
[[nodiscard]] std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace sluice::config
