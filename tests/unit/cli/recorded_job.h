// Class RecordedJob builds the black boxes of a job for tests: processes on hosts with clocks of their own,
// and what they recorded.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "blackbox/event.h"
#include "cli/blackbox/blackbox_file.h"
#include "cli/blackbox/first_event.h"
#include "cli/blackbox/timeline.h"

namespace sluice::cli::test {

inline constexpr uint64_t kSession = 0x3f2a0b1c00000001;
inline constexpr uint64_t kReducerA = 0xaaaa000000000001;
inline constexpr uint64_t kReducerB = 0xbbbb000000000002;
inline constexpr Nanos kWall = 1'700'000'000 * kSecond;  // when every file is written, on the true clock
inline constexpr Nanos kMonotonic = 5000 * kSecond;

// The fields of an event. Times are milliseconds before the files are written, on the true clock.
struct Recorded {
  double before_ms = 0;
  blackbox::EventKind kind = blackbox::EventKind::kNone;
  uint64_t peer = blackbox::kNoPeer;
  uint64_t a = 0;
  uint64_t b = 0;
  Errc code = Errc::kOk;
  std::string text = {};
};

class RecordedJob {
 public:
  // `clock_error`: how far the host's wall clock is ahead of the true one.
  size_t add_process(const std::string& host, Nanos clock_error = 0) {
    RecordedProcess p;
    p.file = host + ".jsonl";
    p.program = "test";
    p.host = host;
    p.boot = "boot of " + host;
    p.pid = 100 + processes_.size();
    p.monotonic = kMonotonic;
    p.wall = kWall + clock_error;
    processes_.push_back(std::move(p));
    return processes_.size() - 1;
  }
  RecordedProcess& process(size_t index) { return processes_[index]; }

  // A process with one rank, or one reducer, that has joined the session 100 s before.
  size_t add_rank(uint64_t rank, const std::string& host, Nanos clock_error = 0) {
    const size_t p = add_process(host, clock_error);
    of_rank(p, rank,
            {.before_ms = 100'000,
             .kind = blackbox::EventKind::kReducerJoined,
             .peer = kReducerA,
             .text = "reducer 10.0.0.1:7470"});
    of_rank(p, rank,
            {.before_ms = 100'000,
             .kind = blackbox::EventKind::kReducerJoined,
             .peer = kReducerB,
             .text = "reducer 10.0.0.2:7470"});
    return p;
  }
  size_t add_reducer(uint64_t id, const std::string& host, Nanos clock_error = 0) {
    const size_t p = add_process(host, clock_error);
    of_reducer(p, id,
               {.before_ms = 200'000, .kind = blackbox::EventKind::kReducerListening, .text = "*:7470"}, 0);
    of_reducer(p, id, {.before_ms = 100'000, .kind = blackbox::EventKind::kOpened, .peer = id, .a = 2});
    return p;
  }

  void of_rank(size_t p, uint64_t rank, Recorded r, uint64_t session = kSession) {
    add(p, blackbox::Role::kRank, rank, session, std::move(r));
  }
  void of_reducer(size_t p, uint64_t id, Recorded r, uint64_t session = kSession) {
    add(p, blackbox::Role::kReducer, id, session, std::move(r));
  }
  void of_process(size_t p, Recorded r) { add(p, blackbox::Role::kProcess, 0, 0, std::move(r)); }

  [[nodiscard]] std::string sentence() const { return find_first_event(Timeline(processes_)).sentence; }
  [[nodiscard]] const std::vector<RecordedProcess>& processes() const { return processes_; }

 private:
  void add(size_t p, blackbox::Role role, uint64_t source, uint64_t session, Recorded r) {
    const auto before = static_cast<Nanos>(r.before_ms * 1e6);
    processes_[p].events.push_back({.event = {.at = kMonotonic - before,
                                              .session = session,
                                              .source = source,
                                              .peer = r.peer,
                                              .a = r.a,
                                              .b = r.b,
                                              .kind = r.kind,
                                              .code = r.code,
                                              .role = role},
                                    .text = std::move(r.text)});
  }

  std::vector<RecordedProcess> processes_;
};

}  // namespace sluice::cli::test
