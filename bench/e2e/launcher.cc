#include "bench/e2e/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/local_star.h"
#include "bench/e2e/star_server.h"
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

class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options),
        processes_(options.connect.starts_with('@')),
        deadline_(options.deadline != 0 ? monotonic_now() + options.deadline
                                        : std::numeric_limits<Nanos>::max() / 2) {}

  int run() {
    std::string list = options_.connect;
    std::vector<std::string> more;  // for the workers, behind what the user gave
    if (list.empty()) {
      auto started = LocalPool::start(processes_, options_.pool);
      if (!started && processes_.interrupted() != 0) return end_interrupted();
      pool_ = value_or_fail(std::move(started), kExitFailure);
      list = pool_.list();
    }
    if (options_.star) {
      auto started = start_star(processes_, StarServerOptions{}.spin);
      if (!started && processes_.interrupted() != 0) return end_interrupted();
      star_ = value_or_fail(std::move(started), kExitFailure);
      more = {"--star", fmt::format("127.0.0.1:{}", star_->port)};
    }
    start_workers(list, more);
    if (const int code = wait_for_workers(); code != kExitOk) return code;
    return end_servers();
  }

 private:
  void start_workers(const std::string& list, const std::vector<std::string>& more) {
    const std::string session = options_.session.empty() ? random_session_id() : options_.session;
    for (uint32_t rank = 0; rank < options_.workers; ++rank) {
      ChildSpec spec{.name = fmt::format("worker {}", rank), .arguments = options_.arguments, .piped = false};
      spec.arguments.insert(spec.arguments.end(), more.begin(), more.end());
      spec.arguments.insert(spec.arguments.end(),
                            {"--connect", list, "--session", session, "--workers",
                             std::to_string(options_.workers), "--rank", std::to_string(rank)});
      workers_.push_back(value_or_fail(processes_.start(spec), kExitFailure));
    }
  }

  int wait_for_workers() {
    for (size_t left = workers_.size(); left > 0;) {
      auto ended = processes_.wait(deadline_);
      if (!ended) {
        if (processes_.interrupted() == 0) return end_by_deadline();
        if (!options_.workers_stop || stopping_) return end_interrupted();
        ask_workers_to_stop();
        continue;
      }
      const bool is_worker = std::find(workers_.begin(), workers_.end(), ended->child) != workers_.end();
      // A terminal's Ctrl-C goes to reducers too: one drains, and may be done before the last worker has
      // ended.
      if (!is_worker && options_.workers_stop && ended->ok()) continue;
      if (!ended->ok() || !is_worker) return end_after_failure({std::move(*ended)});
      --left;
    }
    return kExitOk;
  }

  void ask_workers_to_stop() {
    stopping_ = true;
    // With the other of the two signals: a terminal or a service manager has sent its own to all, and a
    // second of the same kind ends a worker at once.
    const int number = processes_.interrupted() == SIGINT ? SIGTERM : SIGINT;
    for (const size_t worker : workers_) processes_.signal(worker, number);
    processes_.forget_interruption();
  }

  int end_after_failure(std::vector<ChildEnd> failures) {
    const Nanos until = monotonic_now() + kAfterFailure;
    while (auto ended = processes_.wait(until)) {
      if (!ended->ok()) failures.push_back(std::move(*ended));
    }
    const ChildEnd& cause = cause_of(failures);
    for (const ChildEnd& end : failures) {
      if (&end != &cause) log::debug(end.text());
    }
    const size_t others = failures.size() - 1;
    log::error(fmt::format("ending the run, because {}{}", cause.text(),
                           others == 0 ? "" : fmt::format(", and {} more failed", others)));
    processes_.end_all(kGrace);
    return cause.exit_code() == 0 ? static_cast<int>(kExitFailure) : cause.exit_code();
  }

  int end_interrupted() {
    processes_.end_all(kGrace);
    return 128 + processes_.interrupted();
  }

  int end_by_deadline() {
    log::error(
        fmt::format("ending the run, because its deadline of {} s has passed", options_.deadline / kSecond));
    processes_.end_all(kGrace);
    return kExitFailure;
  }

  int end_servers() {
    int code = kExitOk;
    for (const ChildEnd& end : processes_.end(pool_.children(), kPoolGrace)) {
      // A reducer that a Ctrl-C had begun to drain takes ours for the second signal.
      if (end.ok() || stopping_) continue;
      log::error(end.text());
      code = kExitFailure;
    }
    if (star_) processes_.end({star_->child}, kGrace);
    return code;
  }

  const LaunchOptions& options_;
  ProcessGroup processes_;
  const Nanos deadline_;
  LocalPool pool_;
  std::optional<LocalStar> star_;
  std::vector<size_t> workers_;
  bool stopping_ = false;  // the workers have been asked to stop
};

}  // namespace

int launch(const LaunchOptions& options) {
  return Launch(options).run();
}

}  // namespace sluice::bench
