// Writes the port that the kernel assigned to a file, for the process that started this one.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace sluice::bench {

// Writes the port and a newline atomically: to a temporary file in the same folder, which is then renamed to
// `path`.
[[nodiscard]] Result<void> write_port_file(const std::string& path, uint16_t port);

}  // namespace sluice::bench
