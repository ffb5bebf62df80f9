#include "reducer/control/session/session_log.h"

#include <algorithm>

namespace sluice::reducer {
namespace {

// "12 more lines about sessions of job "a" in the same minute".
std::string count_text(uint64_t suppressed, const char* lines, const std::string& of) {
  return std::to_string(suppressed) + " more " + lines + " about sessions of " + of + " in the same minute";
}

std::string job_text(std::string job) {
  // Clients choose the names of jobs.
  std::ranges::replace_if(
      job, [](char c) { return c < ' ' || c > '~' || c == '"'; }, '?');
  return job.empty() ? "other jobs" : "job \"" + job + '"';
}

std::string host_text(const std::string& host) {
  return host.empty() ? "other hosts" : "jobs of " + host;
}

}  // namespace

void SessionLog::end_windows(Nanos now) {
  const auto end = [&](JobLineLimit& limit, const auto& write) {
    limit.end_windows(
        now, [&](const std::string& job, uint64_t lines) { write(lines, job_text(job)); },
        [&](const std::string& host, uint64_t lines) { write(lines, host_text(host)); });
  };
  end(infos_, [this](uint64_t lines, const std::string& of) { log_.info(count_text(lines, "lines", of)); });
  end(warnings_,
      [this](uint64_t lines, const std::string& of) { log_.warn(count_text(lines, "warnings", of)); });
}

}  // namespace sluice::reducer
