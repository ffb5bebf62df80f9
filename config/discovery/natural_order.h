// Names with numbers in them as people count: reducer-2 before reducer-10. The DNS and some platforms give
// hosts in any order, and all processes of a job must see the same one.
#pragma once

#include <string_view>

namespace sluice::config::discovery {

// A strict order of all texts: runs of digits by their value, then by their length; else by bytes.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b) noexcept;

}  // namespace sluice::config::discovery
