#include "bench/e2e/replay/replay_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>

#include "bench/e2e/pool/pool_status.h"
#include "bench/e2e/process/cpu_time.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/replay/bucket_buffers.h"
#include "bench/e2e/replay/replay_report.h"
#include "bench/e2e/workload/pattern.h"
#include "config/pool.h"
#include "config/sizes.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr Nanos kReplayStatusTimeout = 5 * kSecond;
constexpr size_t kMaxInFlight = 1000;  // below the limit of the library, 1024 operations

double replay_seconds(Nanos time) {
  return 1e-9 * static_cast<double>(time);
}

void sleep_until(Nanos when) {
  const timespec t{.tv_sec = when / kSecond, .tv_nsec = when % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

// Class ReplayRun replays the trace on one rank.
class ReplayRun {
 public:
  ReplayRun(const ReplayOptions& options, const WorkerOptions& worker)
      : options_(options),
        buckets_(options.trace.buckets),
        buffers_(buckets_, options.buffer_limit),
        session_(worker),
        has_progress_thread_(worker.progress_threads != 0),
        pool_(value_or_fail(config::read_reducers(worker.reducers), kExitUsage)),
        credentials_(
            value_or_fail(read_credentials(worker.key_file, worker.token_file, worker.job), kExitConfig)),
        requests_(buckets_.size()) {
    for (const std::span<std::byte> part : buffers_.memory())
      session_.register_memory(part.data(), part.size());
  }

  int run(const WorkerOptions& worker) {
    ReplayReport report(options_, worker, gather_ranks(session_), buffers_text());
    ReplayTotals totals;
    totals.wrong = session_.reduce(count_wrong(), wire::Op::kSum);
    for (uint32_t i = 0; i < options_.warmup; ++i) (void)run_step();

    const std::optional<PoolUsage> before = pool_usage();
    double cpu = 0;  // seconds
    for (uint32_t i = 0; i < options_.iterations; ++i) {
      session_.barrier();
      const double cpu_before = own_cpu_seconds();
      const Nanos whole = run_step();
      cpu += own_cpu_seconds() - cpu_before;
      report.add(session_.reduce(replay_seconds(whole), wire::Op::kMax));
    }
    const double gb =
        1e-9 * static_cast<double>(options_.trace.bytes()) * options_.iterations * session_.ranks();
    totals.worker_cpu_per_gb = session_.reduce(cpu, wire::Op::kSum) / gb;
    const std::optional<PoolUsage> after = pool_usage();
    if (before && after && after->bytes_received > before->bytes_received) {
      totals.reducer_cpu_per_gb = (after->cpu_seconds - before->cpu_seconds) /
                                  (1e-9 * (after->bytes_received - before->bytes_received));
    }
    const int code = report.finish(totals);
    session_.close();
    return code;
  }

 private:
  [[nodiscard]] size_t elements_of(size_t bucket) const {
    return buckets_[bucket].bytes / wire::size_of(options_.dtype);
  }

  void start(size_t bucket) {
    const auto [send, recv] = buffers_.buffers_of(bucket);
    requests_[bucket] = session_.start(send, recv, elements_of(bucket), options_.dtype, wire::Op::kSum);
  }

  // Runs one step. Returns the time from its start until every bucket is reduced. Does not check the sums: in
  // place, each step reduces the results of the step before. count_wrong() checks them.
  Nanos run_step() {
    const Nanos begin = monotonic_now();
    size_t finished = 0;  // number of buckets known to be reduced
    for (size_t i = 0; i < buckets_.size(); ++i) {
      wait_until(begin + static_cast<Nanos>(buckets_[i].ready_us) * kMicrosecond, finished, i);
      if (i - finished == kMaxInFlight) session_.wait(requests_[finished++]);
      start(i);
    }
    while (finished < buckets_.size()) session_.wait(requests_[finished++]);
    return monotonic_now() - begin;
  }

  // Waits until `when`. Buckets from `finished` to `started` are in flight. Without a progress thread they
  // make progress only while this thread waits for them.
  void wait_until(Nanos when, size_t& finished, size_t started) {
    while (!has_progress_thread_ && finished < started) {
      const Nanos left = when - monotonic_now();
      if (left <= 0) return;
      if (session_.wait_for(requests_[finished], static_cast<int>(left / kMillisecond))) ++finished;
    }
    sleep_until(when);
  }

  // Reduces every bucket once with known data. Buckets without shared memory are in flight at the same time.
  uint64_t count_wrong() {
    uint64_t wrong = 0;
    for (size_t begin = 0; begin < buckets_.size();) {
      const size_t end = std::min(buffers_.end_of_disjoint(begin), begin + kMaxInFlight);
      for (size_t i = begin; i < end; ++i)
        pattern(i).fill(session_.rank(), elements_of(i), buffers_.buffers_of(i).send);
      for (size_t i = begin; i < end; ++i) start(i);
      for (size_t i = begin; i < end; ++i) session_.wait(requests_[i]);
      for (size_t i = begin; i < end; ++i)
        wrong += pattern(i).count_wrong(buffers_.buffers_of(i).recv, elements_of(i));
      begin = end;
    }
    return wrong;
  }

  [[nodiscard]] Pattern pattern(size_t bucket) const {
    return {options_.dtype, wire::Op::kSum, session_.ranks(), bucket + 1};
  }

  [[nodiscard]] std::string buffers_text() const {
    if (!buffers_.shared()) return "in place, separate memory for each bucket";
    return fmt::format(
        "shared memory of {}, one half to send and one half to receive; less memory than the model needs, "
        "the "
        "same bytes on the wire",
        config::size_text(buffers_.bytes()));
  }

  // Queries the pool on rank 0. If the pool does not answer, the report has no reducer figure, and the run
  // continues.
  std::optional<PoolUsage> pool_usage() {
    if (session_.rank() != 0) return std::nullopt;
    auto usage = query_usage(pool_, credentials_, kReplayStatusTimeout);
    if (!usage) return std::nullopt;
    return *usage;
  }

  const ReplayOptions& options_;
  const std::vector<Bucket>& buckets_;
  BucketBuffers buffers_;
  WorkerSession session_;
  bool has_progress_thread_;
  std::vector<config::Endpoint> pool_;
  Credentials credentials_;
  std::vector<sluice_request> requests_;
};

}  // namespace

int run_replay(const ReplayOptions& options, const WorkerOptions& worker) {
  return ReplayRun(options, worker).run(worker);
}

}  // namespace sluice::bench
