// Messages to NCCL's log. Not for hot paths: the calls format and may take a lock of NCCL. Any thread, but
// not after NCCL has unloaded the plugin.
#pragma once

#include "nccl_plugin/abi/types.h"

namespace sluice::nccl {

// Sets the logger that NCCL passed; a null logger is ignored. Without a logger, messages are dropped. Also
// redirects the messages of the engine to NCCL's log.
void set_logger(abi::Logger logger) noexcept;

// Log one line with the prefix "NET/SLUICE: ". The format is printf's.
[[gnu::format(printf, 1, 2)]] void info(const char* format, ...) noexcept;  // NCCL_DEBUG=INFO
[[gnu::format(printf, 1, 2)]] void warn(const char* format, ...) noexcept;  // NCCL_DEBUG=WARN

}  // namespace sluice::nccl
