// The SLUICE_ variables that mean something to somebody. One table for the plugin, libsluice and all
// programs, since they meet in one environment: what is meant for one of them is no slip to the others. A
// test holds it to the sources (functional/variables_test).
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace sluice::config {

struct Variable {
  std::string_view name;
  std::string_view value;
};

// What the NCCL plugin and libsluice read.
[[nodiscard]] std::span<const std::string_view> plugin_variables() noexcept;
// What the options of the programs, the scripts and the tests read beside that.
[[nodiscard]] std::span<const std::string_view> program_variables() noexcept;

// One of the two tables, one of a test (SLUICE_TEST_...), or one that a platform makes from the name of a
// service (SLUICE_SERVICE_HOST, SLUICE_REDUCER_PORT=tcp://..., SLUICE_PORT_7470_TCP_ADDR).
[[nodiscard]] bool is_known_variable(const Variable& variable) noexcept;

// Those of `environment` ("NAME=value", ended by null) that begin with SLUICE_ and that nobody knows, by
// name. They point into it.
[[nodiscard]] std::vector<Variable> unknown_variables(const char* const* environment);

}  // namespace sluice::config
