// Class ReducerLog writes the log lines of one reducer.
//
// A reducer in a worker process must not fill the log of the training job, which tells about the same
// sessions: it writes warnings and errors only, with a prefix that tells them from those of the worker. Any
// thread; not for the data path.
#pragma once

#include <string>

#include "core/log.h"

namespace sluice::reducer {

class ReducerLog {
 public:
  explicit ReducerLog(bool hosted) noexcept : hosted_(hosted) {}

  void debug(const std::string& line) const {
    if (!hosted_) log::debug(line);
  }
  void info(const std::string& line) const {
    if (!hosted_) log::info(line);
  }
  void warn(const std::string& line) const { log::warn(prefixed(line)); }
  void error(const std::string& line) const { log::error(prefixed(line)); }

 private:
  [[nodiscard]] std::string prefixed(const std::string& line) const {
    return hosted_ ? "co-located reducer: " + line : line;
  }

  bool hosted_;
};

}  // namespace sluice::reducer
