// The SLUICE_ variables that mean something to somebody.
#pragma once

#include <string_view>

namespace sluice::nccl {

// A variable of this plugin, of the program `sluice`, or one that a platform makes from a service's name
// (SLUICE_SERVICE_HOST, SLUICE_PORT_...).
[[nodiscard]] bool is_known_variable(std::string_view name) noexcept;

// The plugin's variable with the fewest letters to change.
[[nodiscard]] std::string_view nearest_variable(std::string_view name);

}  // namespace sluice::nccl
