#include "bench/e2e/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/worker_session.h"
#include "core/clock.h"
#include "core/log.h"

namespace sluice::bench {
namespace {

constexpr Nanos kGrace = 3 * kSecond;       // from SIGTERM to SIGKILL, for workers
constexpr Nanos kPoolGrace = 30 * kSecond;  // the same for reducers: they drain
constexpr Nanos kAfterFailure = kSecond;    // how long the others may still say what they saw

// The end that explains the others best: a signal, else the earliest failure.
const ChildEnd& cause_of(const std::vector<ChildEnd>& failures) {
  for (const ChildEnd& end : failures) {
    if (end.wait_status != 0 && (end.wait_status & 0x7f) != 0) return end;
  }
  return failures.front();
}

int end_after_failure(ProcessGroup& processes, std::vector<ChildEnd> failures) {
  const Nanos until = monotonic_now() + kAfterFailure;
  while (auto ended = processes.wait(until)) {
    if (!ended->ok()) failures.push_back(std::move(*ended));
  }
  const ChildEnd& cause = cause_of(failures);
  for (const ChildEnd& end : failures) {
    if (&end != &cause) log::debug(end.text());
  }
  const size_t others = failures.size() - 1;
  log::error(fmt::format("ending the run, because {}{}", cause.text(),
                         others == 0 ? "" : fmt::format(", and {} more failed", others)));
  processes.end_all(kGrace);
  return cause.exit_code() == 0 ? static_cast<int>(kExitFailure) : cause.exit_code();
}

int end_interrupted(ProcessGroup& processes) {
  processes.end_all(kGrace);
  return 128 + processes.interrupted();
}

}  // namespace

int launch(const LaunchOptions& options) {
  ProcessGroup processes;
  const Nanos deadline =
      options.deadline != 0 ? monotonic_now() + options.deadline : std::numeric_limits<Nanos>::max() / 2;
  LocalPool pool;
  std::string list = options.connect;
  if (list.empty()) {
    auto started = LocalPool::start(processes, options.pool);
    if (!started && processes.interrupted() != 0) return end_interrupted(processes);
    pool = value_or_fail(std::move(started), kExitFailure);
    list = pool.list();
  }
  const std::string session = options.session.empty() ? random_session_id() : options.session;
  size_t left = 0;
  for (uint32_t rank = 0; rank < options.workers; ++rank, ++left) {
    ChildSpec spec{.name = fmt::format("worker {}", rank), .arguments = options.arguments, .piped = false};
    spec.arguments.insert(spec.arguments.end(),
                          {"--connect", list, "--session", session, "--workers",
                           std::to_string(options.workers), "--rank", std::to_string(rank)});
    value_or_fail(processes.start(spec), kExitFailure);
  }
  const auto is_reducer = [&pool](size_t child) {
    return std::find(pool.children().begin(), pool.children().end(), child) != pool.children().end();
  };
  while (left > 0) {
    auto ended = processes.wait(deadline);
    if (!ended) {
      if (processes.interrupted() != 0) return end_interrupted(processes);
      log::error(
          fmt::format("ending the run, because its deadline of {} s has passed", options.deadline / kSecond));
      processes.end_all(kGrace);
      return kExitFailure;
    }
    if (!ended->ok() || is_reducer(ended->child)) return end_after_failure(processes, {std::move(*ended)});
    --left;
  }
  int code = kExitOk;
  for (const ChildEnd& end : processes.end(pool.children(), kPoolGrace)) {
    if (end.ok()) continue;
    log::error(end.text());
    code = kExitFailure;
  }
  return code;
}

}  // namespace sluice::bench
