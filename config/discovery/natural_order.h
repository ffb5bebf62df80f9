// Orders host names by the numbers in them: reducer-2 before reducer-10. DNS and some platforms return hosts
// in any order, but all processes of a job must use the same one.
#pragma once

#include <string_view>

namespace sluice::config::discovery {

// A strict total order: runs of digits compare by value, then by length; everything else by bytes.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b) noexcept;

}  // namespace sluice::config::discovery
