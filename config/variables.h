// Lists the SLUICE_ environment variables that any component of the project reads. The NCCL plugin, libsluice
// and all programs share one environment, so each must know the variables of the others. The test
// functional/variables_test compares the list with the sources.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace sluice::config {

struct Variable {
  std::string_view name;
  std::string_view value;
};

// Variables that the NCCL plugin and libsluice read.
[[nodiscard]] std::span<const std::string_view> plugin_variables() noexcept;

// True for a listed variable, a test variable (SLUICE_TEST_...), and a variable that Kubernetes derives from
// a Service name (SLUICE_SERVICE_HOST, SLUICE_REDUCER_PORT=tcp://..., SLUICE_PORT_7470_TCP_ADDR).
[[nodiscard]] bool is_known_variable(const Variable& variable) noexcept;

// Returns the SLUICE_ variables of `environment` ("NAME=value", ended by null) that are not known, sorted by
// name. The results point into `environment`.
[[nodiscard]] std::vector<Variable> unknown_variables(const char* const* environment);

}  // namespace sluice::config
