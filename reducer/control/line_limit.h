// Class LineLimit bounds how many log lines a subject causes within a window of time, and counts the others.
//
// Strangers choose the subjects, so their number is bounded too: beyond it they share one account, whose
// subject is empty. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/units.h"

namespace sluice::reducer {

class LineLimit {
 public:
  LineLimit(uint32_t lines, Nanos window, size_t max_subjects) noexcept
      : lines_(lines), window_(window), max_subjects_(max_subjects) {}

  // True if the line may be written; otherwise it is counted.
  [[nodiscard]] bool admits(const std::string& subject, Nanos now) {
    const bool has_account = accounts_.contains(subject) || accounts_.size() < max_subjects_;
    Account& account =
        accounts_.try_emplace(has_account ? subject : std::string(), Account{now}).first->second;
    if (account.lines < lines_) {
      ++account.lines;
      return true;
    }
    ++account.suppressed;
    return false;
  }
  // Calls report(subject, suppressed lines) for each window that ended with such lines.
  template <typename Report>
  void end_windows(Nanos now, const Report& report) {
    std::erase_if(accounts_, [&](const auto& entry) {
      const auto& [subject, account] = entry;
      if (now - account.since < window_) return false;
      if (account.suppressed != 0) report(subject, account.suppressed);
      return true;
    });
  }

 private:
  struct Account {
    Nanos since = 0;
    uint32_t lines = 0;
    uint64_t suppressed = 0;
  };

  const uint32_t lines_;
  const Nanos window_;
  const size_t max_subjects_;
  std::map<std::string, Account> accounts_;
};

}  // namespace sluice::reducer
