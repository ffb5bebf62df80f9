// Class StderrSink writes log lines to stderr for as long as its reader keeps up. A pipe that nobody empties
// would stop every thread that logs, the control loop among them, and with it the jobs of a reducer. So a
// line waits for at most kPatience; those that follow are counted instead of written, without a wait, until
// there is room again, and then one line tells their number.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>
#include <string_view>

namespace sluice::cli {

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  static constexpr int kPatience = 50;  // milliseconds

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  // Whether the line, or most of a long one, has been written or cannot be.
  [[nodiscard]] bool write(std::string_view line) const noexcept;
  [[nodiscard]] std::string_view format(const spdlog::details::log_msg& message,
                                        spdlog::memory_buf_t& buffer);

  uint64_t lost_ = 0;  // lines, since the last one that was written
};

}  // namespace sluice::cli
