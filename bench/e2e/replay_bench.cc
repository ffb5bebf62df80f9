#include "bench/e2e/replay_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>

#include "bench/e2e/bucket_buffers.h"
#include "bench/e2e/cpu_time.h"
#include "bench/e2e/exit_codes.h"
#include "bench/e2e/pattern.h"
#include "bench/e2e/pool_status.h"
#include "bench/e2e/replay_report.h"
#include "config/pool.h"
#include "config/sizes.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr Nanos kStatusTimeout = 5 * kSecond;
constexpr size_t kMostOpen = 1000;  // below the library's 1024, which frameworks do not come near

double seconds_of(Nanos time) {
  return 1e-9 * static_cast<double>(time);
}

void sleep_until(Nanos when) {
  const timespec t{.tv_sec = when / kSecond, .tv_nsec = when % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

class ReplayRun {
 public:
  ReplayRun(const ReplayOptions& options, const WorkerOptions& worker)
      : options_(options),
        buckets_(options.trace.buckets),
        buffers_(buckets_, options.buffer_limit),
        session_(worker),
        own_thread_(worker.progress_threads != 0),
        pool_(value_or_fail(config::read_reducers(worker.reducers), kExitUsage)),
        credentials_(
            value_or_fail(read_credentials(worker.key_file, worker.token_file, worker.job), kExitConfig)),
        requests_(buckets_.size()) {
    for (const std::span<std::byte> part : buffers_.memory()) session_.use_memory(part.data(), part.size());
  }

  int run(const WorkerOptions& worker) {
    ReplayReport report(options_, worker, gather_ranks(session_), buffers_text());
    ReplayTotals totals;
    totals.wrong = session_.reduce(count_wrong(), wire::Op::kSum);
    for (uint32_t i = 0; i < options_.warmup; ++i) (void)play();

    const std::optional<PoolUsage> before = pool_usage();
    double cpu = 0;  // seconds
    for (uint32_t i = 0; i < options_.iterations; ++i) {
      session_.barrier();
      const double cpu_before = own_cpu_seconds();
      const Nanos whole = play();
      cpu += own_cpu_seconds() - cpu_before;
      report.add(session_.reduce(seconds_of(whole), wire::Op::kMax));
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
    const auto [send, recv] = buffers_.place(bucket);
    requests_[bucket] = session_.start(send, recv, elements_of(bucket), options_.dtype, wire::Op::kSum);
  }

  // From the begin of the step until every bucket is reduced. What the sums are is looked at elsewhere: in
  // place, each step adds up what the one before has left.
  Nanos play() {
    const Nanos begin = monotonic_now();
    size_t waited = 0;  // buckets that are known to be reduced
    for (size_t i = 0; i < buckets_.size(); ++i) {
      wait_until(begin + static_cast<Nanos>(buckets_[i].ready_us) * kMicrosecond, waited, i);
      if (i - waited == kMostOpen) session_.wait(requests_[waited++]);
      start(i);
    }
    while (waited < buckets_.size()) session_.wait(requests_[waited++]);
    return monotonic_now() - begin;
  }

  // Buckets from `waited` to `started` are open. Without a progress thread they move only while this one
  // waits for them.
  void wait_until(Nanos when, size_t& waited, size_t started) {
    while (!own_thread_ && waited < started) {
      const Nanos left = when - monotonic_now();
      if (left <= 0) return;
      if (session_.wait_for(requests_[waited], static_cast<int>(left / kMillisecond))) ++waited;
    }
    sleep_until(when);
  }

  // Every bucket once with known data, as many at once as have memory of their own.
  uint64_t count_wrong() {
    uint64_t wrong = 0;
    for (size_t begin = 0; begin < buckets_.size();) {
      const size_t end = std::min(buffers_.end_of_distinct(begin), begin + kMostOpen);
      for (size_t i = begin; i < end; ++i)
        pattern(i).fill(session_.rank(), elements_of(i), buffers_.place(i).send);
      for (size_t i = begin; i < end; ++i) start(i);
      for (size_t i = begin; i < end; ++i) session_.wait(requests_[i]);
      for (size_t i = begin; i < end; ++i)
        wrong += pattern(i).count_wrong(buffers_.place(i).recv, elements_of(i));
      begin = end;
    }
    return wrong;
  }

  [[nodiscard]] Pattern pattern(size_t bucket) const {
    return {options_.dtype, wire::Op::kSum, session_.ranks(), bucket + 1};
  }

  [[nodiscard]] std::string buffers_text() const {
    if (!buffers_.shared()) return "in place, each bucket in memory of its own";
    return fmt::format(
        "buckets share {}, half to send from, half to receive into: less memory than the "
        "model has, the same bytes on the wire",
        config::size_text(buffers_.bytes()));
  }

  // Rank 0 asks; a pool that does not tell costs the figure, not the run.
  std::optional<PoolUsage> pool_usage() {
    if (session_.rank() != 0) return std::nullopt;
    auto usage = query_usage(pool_, credentials_, kStatusTimeout);
    if (!usage) return std::nullopt;
    return *usage;
  }

  const ReplayOptions& options_;
  const std::vector<Bucket>& buckets_;
  BucketBuffers buffers_;
  WorkerSession session_;
  bool own_thread_;
  std::vector<config::Endpoint> pool_;
  Credentials credentials_;
  std::vector<sluice_request> requests_;
};

}  // namespace

int run_replay(const ReplayOptions& options, const WorkerOptions& worker) {
  return ReplayRun(options, worker).run(worker);
}

}  // namespace sluice::bench
