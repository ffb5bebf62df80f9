#include "bench/e2e/latency/latency_bench.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "bench/e2e/latency/latency_report.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/star/star_client.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/e2e/workload/pattern.h"
#include "bench/e2e/workload/size_sweep.h"
#include "config/endpoints.h"
#include "core/arena.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr wire::DType kLatencyType = wire::DType::kF32;
constexpr wire::Op kLatencyOp = wire::Op::kSum;

config::Endpoint parse_star(const std::string& text) {
  const auto parsed = value_or_fail(config::parse_endpoints(text), kExitUsage);
  if (parsed.size() != 1) throw Failure(kExitUsage, "--star \"" + text + "\": expected HOST:PORT");
  return parsed.front();
}

std::vector<uint64_t> sizes_of(const LatencyOptions& o) {
  return sizes_of(SizeSweep{.min_bytes = o.min_bytes, .max_bytes = o.max_bytes, .factor = o.step_factor});
}

// Class LatencyRun measures all sizes on one rank.
class LatencyRun {
 public:
  LatencyRun(const LatencyOptions& options, const WorkerOptions& worker)
      : options_(options),
        session_(worker),
        send_(value_or_fail(Arena::map(options.max_bytes), kExitFailure)),
        recv_(value_or_fail(Arena::map(options.max_bytes), kExitFailure)) {
    for (const Arena* arena : {&send_, &recv_}) session_.register_memory(arena->data(), arena->size());
    // No allocations in the timed loops.
    sluice_times_.reserve(options.iterations);
    star_times_.reserve(options.iterations);
  }

  int run(const WorkerOptions& worker) {
    LatencyReport report(options_, worker, gather_ranks(session_));
    for (const uint64_t bytes : sizes_of(options_)) report.add(measure(bytes / sizeof(float)));
    const int code = report.finish();
    session_.close();
    return code;
  }

 private:
  LatencyRow measure(size_t count) {
    const uint64_t bytes = count * sizeof(float);
    std::unique_ptr<StarClient> star;  // a connection to the star has a fixed chunk size
    if (!options_.star.empty()) {
      star = std::make_unique<StarClient>(
          parse_star(options_.star), StarShape{.workers = session_.ranks(), .slots = 1, .chunk_bytes = bytes},
          StarWait::kSpin);
    }
    sluice_times_.clear();
    star_times_.clear();
    LatencyRow row{.bytes = bytes};
    uint64_t wrong = 0;
    bool star_first = false;  // alternates which of the two runs after the check
    for (uint32_t done = 0; done < options_.iterations; star_first = !star_first) {
      const uint32_t n = std::min(options_.batch, options_.iterations - done);
      if (star && star_first) run_star(*star, bytes, n);
      wrong += run_sluice(count, n);
      if (star && !star_first) run_star(*star, bytes, n);
      row.checked += session_.ranks();
      done += n;
    }
    row.sluice = quantiles_of(sluice_times_);
    if (star) row.star = quantiles_of(star_times_);
    row.wrong = session_.reduce(wrong, wire::Op::kSum);
    return row;
  }

  // Returns the number of wrong elements in the last result.
  uint64_t run_sluice(size_t count, uint32_t n) {
    const Pattern pattern(kLatencyType, kLatencyOp, session_.ranks(), seed_++);
    pattern.fill(session_.rank(), count, send_.data());
    std::fill_n(recv_.data(), count * sizeof(float), std::byte{0});
    time_each(n, sluice_times_,
              [&] { session_.allreduce(send_.data(), recv_.data(), count, kLatencyType, kLatencyOp); });
    return pattern.count_wrong(recv_.data(), count);
  }

  void run_star(StarClient& star, uint64_t bytes, uint32_t n) {
    time_each(n, star_times_, [&] { star.exchange(send_.data(), recv_.data(), bytes); });
  }

  template <typename Operation>
  void time_each(uint32_t n, std::vector<double>& times, Operation operation) {
    for (uint32_t i = 0; i < options_.warmup; ++i) operation();
    for (uint32_t i = 0; i < n; ++i) {
      const Nanos begin = monotonic_now();
      operation();
      times.push_back(1e-9 * static_cast<double>(monotonic_now() - begin));
    }
  }

  const LatencyOptions& options_;
  WorkerSession session_;
  Arena send_;
  Arena recv_;
  std::vector<double> sluice_times_;  // seconds, of the current size
  std::vector<double> star_times_;
  uint64_t seed_ = 1;
};

}  // namespace

void check(const LatencyOptions& options) {
  if (options.min_bytes < sizeof(float))
    throw Failure(kExitUsage, "minbytes is below 4 B, the size of a float");
  if (options.iterations == 0) throw Failure(kExitUsage, "iters is 0; expected a positive number");
  if (options.batch == 0) throw Failure(kExitUsage, "batch is 0; expected a positive number");
  (void)sizes_of(options);
  if (!options.star.empty()) (void)parse_star(options.star);
}

int run_latency(const LatencyOptions& options, const WorkerOptions& worker) {
  return LatencyRun(options, worker).run(worker);
}

}  // namespace sluice::bench
