// Lines in NCCL's own log, where the people who run the job look. Cold path: formats, may lock in NCCL. Any
// thread, but not after NCCL has unloaded the plugin.
#pragma once

#include "nccl_plugin/abi/types.h"

namespace sluice::nccl {

// The last one given stays; nothing is said before the first. From then on the engine's lines come here too.
void set_logger(abi::Logger logger) noexcept;

// Each is one line with "NET/SLUICE: " in front; printf's format.
[[gnu::format(printf, 1, 2)]] void info(const char* format, ...) noexcept;  // NCCL_DEBUG=INFO
[[gnu::format(printf, 1, 2)]] void warn(const char* format, ...) noexcept;  // NCCL_DEBUG=WARN

}  // namespace sluice::nccl
