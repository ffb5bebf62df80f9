#include "bench/e2e/process/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/star/star_server.h"
#include "bench/e2e/worker/worker_session.h"
#include "core/clock.h"
#include "core/log.h"

namespace sluice::bench {
namespace {

constexpr Nanos kWorkerStopTimeout = 3 * kSecond;  // from SIGTERM to SIGKILL
constexpr Nanos kPoolStopTimeout = 30 * kSecond;   // the same for reducers, which drain
constexpr Nanos kFailureDelay = kSecond;           // time for other processes to report their failures

// Returns the most likely cause: an end by signal, otherwise the first failure.
const ChildEnd& root_cause(const std::vector<ChildEnd>& failures) {
  for (const ChildEnd& end : failures) {
    if (end.wait_status != 0 && (end.wait_status & 0x7f) != 0) return end;
  }
  return failures.front();
}

// Class JobLauncher starts, watches and stops the processes of one job.
class JobLauncher {
 public:
  explicit JobLauncher(const LaunchOptions& options)
      : options_(options),
        processes_(options.connect.starts_with('@')),
        deadline_(options.deadline != 0 ? monotonic_now() + options.deadline
                                        : std::numeric_limits<Nanos>::max() / 2) {}

  int run() {
    std::string list = options_.connect;
    std::vector<std::string> worker_options;  // appended to the arguments of the user
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
      worker_options = {"--star", fmt::format("127.0.0.1:{}", star_->port)};
    }
    start_workers(list, worker_options);
    if (const int code = wait_for_workers(); code != kExitOk) return code;
    return end_servers();
  }

 private:
  void start_workers(const std::string& list, const std::vector<std::string>& worker_options) {
    const std::string session = options_.session.empty() ? random_session_id() : options_.session;
    for (uint32_t rank = 0; rank < options_.workers; ++rank) {
      ChildSpec spec{.name = fmt::format("worker {}", rank), .arguments = options_.arguments, .piped = false};
      spec.arguments.insert(spec.arguments.end(), worker_options.begin(), worker_options.end());
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
        if (!options_.stops_gracefully || is_stopping_) return end_interrupted();
        forward_stop_signal();
        continue;
      }
      const bool is_worker = std::find(workers_.begin(), workers_.end(), ended->child) != workers_.end();
      // Ctrl-C in a terminal also reaches the reducers. A reducer may finish its drain before the last worker
      // ends.
      if (!is_worker && options_.stops_gracefully && ended->ok()) continue;
      if (!ended->ok() || !is_worker) return end_after_failure({std::move(*ended)});
      --left;
    }
    return kExitOk;
  }

  void forward_stop_signal() {
    is_stopping_ = true;
    // A terminal or service manager may have sent its signal to the workers too. A second signal of the same
    // kind ends a worker immediately, so the launcher sends the other kind.
    const int number = processes_.interrupted() == SIGINT ? SIGTERM : SIGINT;
    for (const size_t worker : workers_) processes_.signal(worker, number);
    processes_.clear_interruption();
  }

  int end_after_failure(std::vector<ChildEnd> failures) {
    const Nanos until = monotonic_now() + kFailureDelay;
    while (auto ended = processes_.wait(until)) {
      if (!ended->ok()) failures.push_back(std::move(*ended));
    }
    const ChildEnd& cause = root_cause(failures);
    for (const ChildEnd& end : failures) {
      if (&end != &cause) log::debug(end.text());
    }
    const size_t others = failures.size() - 1;
    log::error(fmt::format("job failed: {}{}", cause.text(),
                           others == 0 ? "" : fmt::format("; {} other processes failed too", others)));
    processes_.stop_all(kWorkerStopTimeout);
    return cause.exit_code() == 0 ? static_cast<int>(kExitFailure) : cause.exit_code();
  }

  int end_interrupted() {
    processes_.stop_all(kWorkerStopTimeout);
    return 128 + processes_.interrupted();
  }

  int end_by_deadline() {
    log::error(fmt::format("job stopped: it did not finish within the deadline of {} s",
                           options_.deadline / kSecond));
    processes_.stop_all(kWorkerStopTimeout);
    return kExitFailure;
  }

  int end_servers() {
    int code = kExitOk;
    for (const ChildEnd& end : processes_.stop(pool_.children(), kPoolStopTimeout)) {
      // For a reducer that drains after Ctrl-C, the signal of the launcher is the second one.
      if (end.ok() || is_stopping_) continue;
      log::error(end.text());
      code = kExitFailure;
    }
    if (star_) processes_.stop({star_->child}, kWorkerStopTimeout);
    return code;
  }

  const LaunchOptions& options_;
  ProcessGroup processes_;
  const Nanos deadline_;
  LocalPool pool_;
  std::optional<LocalStar> star_;
  std::vector<size_t> workers_;
  bool is_stopping_ = false;  // the workers have received a stop signal
};

}  // namespace

int launch(const LaunchOptions& options) {
  return JobLauncher(options).run();
}

}  // namespace sluice::bench
