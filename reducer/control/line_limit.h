// Bounds how many log lines peers cause within a window of time, and counts the others. One thread.
//
// Class LineLimit: for each subject. Strangers choose the subjects, so their number is bounded too: beyond it
// they share one account, whose subject is empty.
// Class JobLineLimit: for each job, and for the jobs that a host brings, so that a host that invents names of
// jobs does not use up the accounts of all others.
#pragma once

#include <algorithm>
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
  // The subject has an account of its own, without lines left.
  [[nodiscard]] bool is_exhausted(const std::string& subject) const {
    const auto account = accounts_.find(subject);
    return account != accounts_.end() && account->second.lines >= lines_;
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

// Clients choose the names of jobs and tenants, which texts repeat.
[[nodiscard]] inline std::string name_in_quotes(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return c < ' ' || c > '~' || c == '"'; }, '?');
  return '"' + name + '"';
}

class JobLineLimit {
 public:
  static constexpr uint32_t kMaxJobs = 256;
  static constexpr uint32_t kMaxHosts = 1024;

  JobLineLimit(uint32_t lines_of_job, Nanos window) noexcept
      : jobs_(lines_of_job, window, kMaxJobs), hosts_(kLinesOfHost, window, kMaxHosts) {}

  [[nodiscard]] bool admits(const std::string& job, const std::string& host, Nanos now) {
    return (jobs_.is_exhausted(job) || hosts_.admits(host, now)) && jobs_.admits(job, now);
  }
  // Calls report(lines, of) for what was suppressed; `of`: "job \"a\"", "other jobs", "jobs of 10.0.0.3" or
  // "jobs of other hosts".
  template <typename Report>
  void end_windows(Nanos now, const Report& report) {
    jobs_.end_windows(now, [&](const std::string& job, uint64_t lines) {
      report(lines, job.empty() ? "other jobs" : "job " + name_in_quotes(job));
    });
    hosts_.end_windows(now, [&](const std::string& host, uint64_t lines) {
      report(lines, "jobs of " + (host.empty() ? "other hosts" : host));
    });
  }

 private:
  static constexpr uint32_t kLinesOfHost = 240;
  static_assert(kLinesOfHost < kMaxJobs, "one host may not use up the accounts of the jobs");

  LineLimit jobs_, hosts_;
};

// The host of "10.0.0.3:50112".
[[nodiscard]] inline std::string host_of(const std::string& peer) {
  return peer.substr(0, peer.rfind(':'));
}

}  // namespace sluice::reducer
