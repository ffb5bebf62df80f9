// Tells whoever started this process which port the OS gave it.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace sluice::bench {

// The port and a newline; `path` appears with its content or not at all (written beside it, then renamed).
[[nodiscard]] Result<void> write_port_file(const std::string& path, uint16_t port);

}  // namespace sluice::bench
