#include "bench/e2e/soak/soak_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <numeric>
#include <random>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/soak/memory_history.h"
#include "bench/e2e/soak/soak_plan.h"
#include "bench/e2e/soak/soak_report.h"
#include "bench/e2e/soak/time_sample.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/e2e/workload/pattern.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/log.h"

namespace sluice::bench {
namespace {

constexpr size_t kSampleCapacity = 65536;
constexpr uint64_t kLoggedWrongResults = 10;  // wrong results that are logged individually
constexpr uint32_t kMaxConcurrent = 1024;

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores to it");

// The first SIGINT or SIGTERM ends the run in an orderly way; the second one of a kind ends the process.
void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true, std::memory_order_relaxed); };
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

// Buffers of one of the concurrent operations.
struct SoakBuffers {
  Arena send;
  Arena recv;
};

// Class SoakRun runs the rounds on one rank.
class SoakRun {
 public:
  SoakRun(const SoakOptions& options, const WorkerOptions& worker)
      : options_(options),
        worker_(worker),
        session_(worker),
        interval_times_(kSampleCapacity),
        all_times_(kSampleCapacity) {
    const size_t bytes = options.max_bytes + kSoakOffsets * sizeof(double);
    for (uint32_t i = 0; i < options.open; ++i) {
      SoakBuffers& b = buffers_.emplace_back();
      for (Arena* arena : {&b.send, &b.recv}) {
        *arena = value_or_fail(Arena::map(bytes), kExitFailure);
        // Touches all pages now, so that they do not count as growth.
        std::fill_n(arena->data(), bytes, std::byte{1});
        session_.register_memory(arena->data(), bytes);
      }
    }
  }

  int run() {
    const uint64_t seed = agree_on_seed();
    SoakReport report(options_, worker_, gather_ranks(session_), seed);
    SoakPlan plan(seed, options_.open, options_.max_bytes);
    const Nanos begin = monotonic_now();
    Nanos last_report = begin;
    Nanos round_begin = begin;
    Nanos longest_round = 0;  // of the whole run
    for (bool more = true; more;) {
      run_round(plan.next_round());
      const Nanos now = monotonic_now();
      total_.elapsed = now - begin;
      total_.resident = resident_bytes();
      memory_.add(total_.elapsed, total_.resident);
      more = agree_to_continue();
      const Nanos round_end = monotonic_now();
      total_.longest_round = std::max(total_.longest_round, round_end - round_begin);
      longest_round = std::max(longest_round, total_.longest_round);
      round_begin = round_end;
      if (now - last_report < options_.interval) continue;
      last_report = now;
      total_.times = interval_times_.quantiles();
      interval_times_.clear();
      report.add(total_);
      total_.longest_round = 0;
    }
    total_.longest_round = longest_round;
    const int code = report.finish(summarize());
    session_.close();
    return code;
  }

 private:
  // Returns the seed of rank 0. All ranks draw the same operations from the seed.
  uint64_t agree_on_seed() {
    uint64_t seed = options_.seed;
    while (seed == 0) seed = std::random_device()();
    return session_.reduce(session_.rank() == 0 ? seed : 0, wire::Op::kSum);
  }

  void run_round(const std::vector<SoakOperation>& round) {
    requests_.clear();
    for (size_t i = 0; i < round.size(); ++i) fill(round[i], buffers_[i]);
    for (size_t i = 0; i < round.size(); ++i) {
      const SoakOperation& o = round[i];
      const Nanos begin = monotonic_now();
      requests_.push_back({start_first(o, source(o, buffers_[i]), target(o, buffers_[i])), begin});
    }
    for (size_t i = 0; i < round.size(); ++i) {
      session_.wait(requests_[i].id);
      if (round[i].method != SoakMethod::kAllreduce) {
        requests_[i].id = start_second(round[i], target(round[i], buffers_[i]));
      }
    }
    for (size_t i = 0; i < round.size(); ++i) {
      if (round[i].method != SoakMethod::kAllreduce) session_.wait(requests_[i].id);
      const double seconds = 1e-9 * static_cast<double>(monotonic_now() - requests_[i].begin);
      interval_times_.add(seconds);
      all_times_.add(seconds);
    }
    for (size_t i = 0; i < round.size(); ++i) check_result(round[i], buffers_[i]);
    total_.operations += round.size();
  }

  // Starts the only or the first collective of the operation.
  sluice_request start_first(const SoakOperation& o, const std::byte* send, std::byte* recv) {
    switch (o.method) {
      case SoakMethod::kAllreduce: break;
      case SoakMethod::kReduceScatterAllGather: {
        const std::vector<size_t> counts = counts_of(o);
        return session_.start_reduce_scatter(send, own_part(o, counts, recv), counts, o.dtype, o.op);
      }
      case SoakMethod::kReduceBroadcast:
        return session_.start_reduce(send, recv, o.count, o.dtype, o.op, root_of(o));
    }
    return session_.start(send, recv, o.count, o.dtype, o.op);
  }
  sluice_request start_second(const SoakOperation& o, std::byte* recv) {
    if (o.method == SoakMethod::kReduceBroadcast)
      return session_.start_broadcast(recv, o.count, o.dtype, root_of(o));
    const std::vector<size_t> counts = counts_of(o);
    return session_.start_all_gather(own_part(o, counts, recv), recv, counts, o.dtype);
  }
  uint32_t root_of(const SoakOperation& o) const { return static_cast<uint32_t>(o.seed % session_.ranks()); }
  // Each rank's part of the operation: for half of the seeds nearly equal ones, otherwise very different
  // ones.
  std::vector<size_t> counts_of(const SoakOperation& o) const {
    const uint32_t ranks = session_.ranks();
    std::vector<size_t> counts(ranks, o.seed % 2 == 0 ? o.count / ranks : 0);
    size_t left = o.seed % 2 == 0 ? o.count % ranks : o.count;
    for (uint32_t i = 0; i + 1 < ranks; ++i) {
      const size_t some = left / 2;
      counts[(root_of(o) + i) % ranks] += some;
      left -= some;
    }
    counts[(root_of(o) + ranks - 1) % ranks] += left;
    return counts;
  }
  std::byte* own_part(const SoakOperation& o, const std::vector<size_t>& counts, std::byte* whole) const {
    const size_t before = std::accumulate(counts.begin(), counts.begin() + session_.rank(), size_t{0});
    return whole + before * wire::size_of(o.dtype);
  }

  Pattern pattern_of(const SoakOperation& o) const { return {o.dtype, o.op, session_.ranks(), o.seed}; }
  static std::byte* target(const SoakOperation& o, const SoakBuffers& b) {
    return b.recv.data() + o.offset * wire::size_of(o.dtype);
  }
  static std::byte* source(const SoakOperation& o, const SoakBuffers& b) {
    return (o.in_place ? b.recv : b.send).data() + o.offset * wire::size_of(o.dtype);
  }

  void fill(const SoakOperation& o, const SoakBuffers& b) const {
    const size_t bytes = o.count * wire::size_of(o.dtype);
    if (!o.in_place) std::fill_n(target(o, b), bytes, std::byte{0});
    pattern_of(o).fill(session_.rank(), o.count, source(o, b));
  }

  void check_result(const SoakOperation& o, const SoakBuffers& b) {
    total_.bytes += o.count * wire::size_of(o.dtype);
    const uint64_t wrong = pattern_of(o).count_wrong(target(o, b), o.count);
    if (wrong == 0) return;
    wrong_in_round_ += wrong;
    if (++wrong_results_ > kLoggedWrongResults) return;
    log::error(fmt::format("rank {}: {} of {} elements are wrong: {} of {}, {}, after {} operations",
                           session_.rank(), wrong, o.count, wire::to_string(o.op), wire::to_string(o.dtype),
                           o.in_place ? "in place" : "out of place", total_.operations));
  }

  // Returns false when the duration on rank 0 has elapsed or any rank received a stop signal. Also adds up
  // the wrong elements of all ranks.
  bool agree_to_continue() {
    const bool stop = g_stop.load(std::memory_order_relaxed);
    const bool time_up =
        session_.rank() == 0 && options_.duration != 0 && total_.elapsed >= options_.duration;
    std::array<uint64_t, 3> sums = {wrong_in_round_, stop ? 1U : 0U, time_up ? 1U : 0U};
    session_.allreduce(sums.data(), sums.data(), sums.size(), wire::DType::kU64, wire::Op::kSum);
    wrong_in_round_ = 0;
    total_.wrong += sums[0];
    interrupted_ = sums[1] != 0;
    return sums[1] == 0 && sums[2] == 0;
  }

  SoakSummary summarize() {
    total_.times = all_times_.quantiles();
    SoakSummary summary{.total = total_, .interrupted = interrupted_};
    summary.resident_early = memory_.at(total_.elapsed / 10);
    const uint64_t growth = total_.resident - std::min(total_.resident, summary.resident_early);
    summary.most_growth = session_.reduce(growth, wire::Op::kMax);
    return summary;
  }

  struct Request {
    sluice_request id;
    Nanos begin;
  };

  const SoakOptions& options_;
  const WorkerOptions& worker_;
  WorkerSession session_;
  std::vector<SoakBuffers> buffers_;
  std::vector<Request> requests_;
  TimeSample interval_times_;
  TimeSample all_times_;
  MemoryHistory memory_;
  SoakProgress total_;
  uint64_t wrong_in_round_ = 0;  // wrong elements on this rank
  uint64_t wrong_results_ = 0;
  bool interrupted_ = false;
};

}  // namespace

void check(const SoakOptions& options) {
  if (options.max_bytes < sizeof(double))
    throw Failure(kExitUsage, "max-size is below 8 B, the size of a double");
  if (options.open == 0 || options.open > kMaxConcurrent)
    throw Failure(kExitUsage, fmt::format("open is {}; expected 1 to {}", options.open, kMaxConcurrent));
  if (options.interval <= 0) throw Failure(kExitUsage, "interval is 0; expected a positive duration");
}

int run_soak(const SoakOptions& options, const WorkerOptions& worker) {
  install_stop_handlers();
  return SoakRun(options, worker).run();
}

}  // namespace sluice::bench
