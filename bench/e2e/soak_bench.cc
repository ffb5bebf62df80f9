#include "bench/e2e/soak_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <random>
#include <vector>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/memory_history.h"
#include "bench/e2e/pattern.h"
#include "bench/e2e/rank_info.h"
#include "bench/e2e/soak_plan.h"
#include "bench/e2e/soak_report.h"
#include "bench/e2e/time_sample.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/log.h"

namespace sluice::bench {
namespace {

constexpr size_t kTimesKept = 65536;
constexpr uint64_t kWrongTold = 10;  // results that are wrong are told one by one so often
constexpr uint32_t kMostOpen = 1024;

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores to it");

// The first of each ends the run in order, the second the process.
void stop_at_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true, std::memory_order_relaxed); };
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

// Where one of the operations that are open at once has its data.
struct Buffers {
  Arena send;
  Arena recv;
};

class SoakRun {
 public:
  SoakRun(const SoakOptions& options, const WorkerOptions& worker)
      : options_(options),
        worker_(worker),
        session_(worker),
        interval_times_(kTimesKept),
        all_times_(kTimesKept) {
    const size_t bytes = options.max_bytes + kSoakOffsets * sizeof(double);
    for (uint32_t i = 0; i < options.open; ++i) {
      Buffers& b = buffers_.emplace_back();
      for (Arena* arena : {&b.send, &b.recv}) {
        *arena = value_or_fail(Arena::map(bytes), kExitFailure);
        // In memory from the start: what comes later is growth.
        std::fill_n(arena->data(), bytes, std::byte{1});
        session_.use_memory(arena->data(), bytes);
      }
    }
  }

  int run() {
    const uint64_t seed = agreed_seed();
    SoakReport report(options_, worker_, gather_ranks(session_), seed);
    SoakPlan plan(seed, options_.open, options_.max_bytes);
    const Nanos begin = monotonic_now();
    Nanos told = begin;
    Nanos round_began = begin;
    Nanos longest_round = 0;  // of the whole run
    for (bool more = true; more;) {
      run_round(plan.next_round());
      const Nanos now = monotonic_now();
      total_.elapsed = now - begin;
      total_.resident = resident_bytes();
      memory_.add(total_.elapsed, total_.resident);
      more = agree_to_go_on();
      const Nanos round_ended = monotonic_now();
      total_.longest_round = std::max(total_.longest_round, round_ended - round_began);
      longest_round = std::max(longest_round, total_.longest_round);
      round_began = round_ended;
      if (now - told < options_.interval) continue;
      told = now;
      total_.times = interval_times_.quantiles();
      interval_times_.clear();
      report.add(total_);
      total_.longest_round = 0;
    }
    total_.longest_round = longest_round;
    const int code = report.finish(end_of_run());
    session_.close();
    return code;
  }

 private:
  // All ranks draw the same operations.
  uint64_t agreed_seed() {
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
      requests_.push_back(
          {session_.start(source(o, buffers_[i]), target(o, buffers_[i]), o.count, o.dtype, o.op), begin});
    }
    for (const Request& request : requests_) {
      session_.wait(request.id);
      const double seconds = 1e-9 * static_cast<double>(monotonic_now() - request.begin);
      interval_times_.add(seconds);
      all_times_.add(seconds);
    }
    for (size_t i = 0; i < round.size(); ++i) check_result(round[i], buffers_[i]);
    total_.operations += round.size();
  }

  Pattern pattern_of(const SoakOperation& o) const { return {o.dtype, o.op, session_.ranks(), o.seed}; }
  static std::byte* target(const SoakOperation& o, const Buffers& b) {
    return b.recv.data() + o.offset * wire::size_of(o.dtype);
  }
  static std::byte* source(const SoakOperation& o, const Buffers& b) {
    return (o.in_place ? b.recv : b.send).data() + o.offset * wire::size_of(o.dtype);
  }

  void fill(const SoakOperation& o, const Buffers& b) const {
    const size_t bytes = o.count * wire::size_of(o.dtype);
    if (!o.in_place) std::fill_n(target(o, b), bytes, std::byte{0});
    pattern_of(o).fill(session_.rank(), o.count, source(o, b));
  }

  void check_result(const SoakOperation& o, const Buffers& b) {
    total_.bytes += o.count * wire::size_of(o.dtype);
    const uint64_t wrong = pattern_of(o).count_wrong(target(o, b), o.count);
    if (wrong == 0) return;
    wrong_in_round_ += wrong;
    if (++wrong_results_ > kWrongTold) return;
    log::error(fmt::format("rank {}: {} of {} elements are wrong: {} of {}, {}, operations so far {}",
                           session_.rank(), wrong, o.count, wire::to_string(o.op), wire::to_string(o.dtype),
                           o.in_place ? "in place" : "out of place", total_.operations));
  }

  // False when rank 0's time is up, or any rank was told to stop. Sums up what was wrong, too.
  bool agree_to_go_on() {
    const bool stop = g_stop.load(std::memory_order_relaxed);
    const bool time_up =
        session_.rank() == 0 && options_.duration != 0 && total_.elapsed >= options_.duration;
    std::array<uint64_t, 3> said = {wrong_in_round_, stop ? 1U : 0U, time_up ? 1U : 0U};
    session_.allreduce(said.data(), said.data(), said.size(), wire::DType::kU64, wire::Op::kSum);
    wrong_in_round_ = 0;
    total_.wrong += said[0];
    interrupted_ = said[1] != 0;
    return said[1] == 0 && said[2] == 0;
  }

  SoakEnd end_of_run() {
    total_.times = all_times_.quantiles();
    SoakEnd end{.total = total_, .interrupted = interrupted_};
    end.resident_early = memory_.at(total_.elapsed / 10);
    const uint64_t growth = total_.resident - std::min(total_.resident, end.resident_early);
    end.most_growth = session_.reduce(growth, wire::Op::kMax);
    return end;
  }

  struct Request {
    sluice_request id;
    Nanos begin;
  };

  const SoakOptions& options_;
  const WorkerOptions& worker_;
  WorkerSession session_;
  std::vector<Buffers> buffers_;
  std::vector<Request> requests_;
  TimeSample interval_times_;
  TimeSample all_times_;
  MemoryHistory memory_;
  SoakProgress total_;
  uint64_t wrong_in_round_ = 0;  // elements of this rank
  uint64_t wrong_results_ = 0;
  bool interrupted_ = false;
};

}  // namespace

void check(const SoakOptions& options) {
  if (options.max_bytes < sizeof(double)) throw Failure(kExitUsage, "max-size is below 8");
  if (options.open == 0 || options.open > kMostOpen)
    throw Failure(kExitUsage, fmt::format("open is not in 1..{}", kMostOpen));
  if (options.interval <= 0) throw Failure(kExitUsage, "interval is 0");
}

int run_soak(const SoakOptions& options, const WorkerOptions& worker) {
  stop_at_signals();
  return SoakRun(options, worker).run();
}

}  // namespace sluice::bench
