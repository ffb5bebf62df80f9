#include "core/log.h"

#include <atomic>
#include <cstdio>
#include <exception>

#include "core/text_encoding.h"

namespace sluice::log {
namespace {

void to_stderr(Level level, std::string_view line) noexcept {
  if (level < Level::kWarn) return;
  try {
    std::fprintf(stderr, "sluice %s: %s\n", level == Level::kError ? "error" : "warning",
                 visible_text(line).c_str());
  } catch (const std::exception&) {  // out of memory: the line is lost
  }
}

std::atomic<Sink> current_sink{&to_stderr};  // set at program start, read by write()

}  // namespace

void set_sink(Sink sink) noexcept {
  current_sink.store(sink != nullptr ? sink : &to_stderr, std::memory_order_release);
}

void write(Level level, std::string_view line) noexcept {
  current_sink.load(std::memory_order_acquire)(level, line);
}

}  // namespace sluice::log
