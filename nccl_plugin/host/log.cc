#include "nccl_plugin/host/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "core/log.h"

namespace sluice::nccl {
namespace {

std::atomic<abi::Logger> current{nullptr};

void log_line(int level, const char* format, va_list arguments) noexcept {
  const abi::Logger logger = current.load(std::memory_order_acquire);
  if (logger == nullptr) return;
  std::array<char, 1024> line;  // NCCL truncates at 1024 too
  std::vsnprintf(line.data(), line.size(), format, arguments);
  logger(level, abi::kLogInit | abi::kLogNet, "sluice", 0, "NET/SLUICE: %s", line.data());
}

// The sink for messages of the engine, for example about lost reducers and stalls.
void log_engine_line(log::Level level, std::string_view line) noexcept {
  const int bytes = static_cast<int>(std::min<size_t>(line.size(), 1024));
  if (level == log::Level::kInfo) info("%.*s", bytes, line.data());
  if (level >= log::Level::kWarn) warn("%.*s", bytes, line.data());
}

}  // namespace

void set_logger(abi::Logger logger) noexcept {
  if (logger == nullptr) return;
  current.store(logger, std::memory_order_release);
  log::set_sink(&log_engine_line);
}

void info(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  log_line(abi::kLogInfo, format, arguments);
  va_end(arguments);
}

void warn(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  log_line(abi::kLogWarn, format, arguments);
  va_end(arguments);
}

}  // namespace sluice::nccl
