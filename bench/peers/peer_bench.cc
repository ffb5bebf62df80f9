#include "bench/peers/peer_bench.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>

#include "bench/e2e/process/cpu_time.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/workload/pattern.h"
#include "bench/peers/peer_times.h"
#include "core/clock.h"
#include "core/float_bits.h"

namespace sluice::bench {
namespace {

constexpr double kLeastWarmup = 0.1;  // seconds

double thread_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Pattern pattern_of(const Peer& peer, uint64_t seed) {
  return {wire::DType::kF32, wire::Op::kSum, peer.ranks(), seed, SummationOrder::kAny};
}

std::byte* bytes_of(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

uint64_t count_different(const float* a, const float* b, size_t count) {
  uint64_t different = 0;
  for (size_t i = 0; i < count; ++i) different += bits_of(a[i]) != bits_of(b[i]) ? 1 : 0;
  return different;
}

// Returns the bytes that the interface has sent. In a network namespace, /sys may show the interfaces of
// another one.
uint64_t sent_bytes_of(const std::string& interface) {
  if (interface.empty()) return 0;
  std::ifstream file("/proc/self/net/dev");
  for (std::string word; file >> word;) {
    if (word != interface + ":") continue;
    uint64_t value = 0;
    for (int column = 0; column < 9; ++column) file >> value;  // the first 8 are of received packets
    if (file) return value;
  }
  throw Failure(kExitUsage, "--interface " + interface + ": no such network interface");
}

}  // namespace

PeerBench::PeerBench(Peer& peer, const PeerOptions& options) : peer_(peer), options_(options) {
  uint64_t max_bytes = 0;
  for (const uint64_t bytes : options.bytes) max_bytes = std::max(max_bytes, bytes);
  if (options.trace) {
    for (const Bucket& bucket : options.trace->buckets) max_bytes = std::max(max_bytes, bucket.bytes);
  }
  first_.resize(max_bytes / sizeof(float));
  last_.resize(first_.size());
  out_.resize(first_.size());
  if (options.collective == Collective::kBoth) gathered_.resize(first_.size());
  if (options.collective != Collective::kAllreduce) expected_.resize(first_.size());
  static_cast<void>(sent_bytes_of(options.interface));
}

void PeerBench::fill(size_t count) {
  pattern_of(peer_, kFirstSeed).fill(peer_.rank(), count, bytes_of(first_));
  pattern_of(peer_, kLastSeed).fill(peer_.rank(), count, bytes_of(last_));
  if (options_.spoil_rank != static_cast<int64_t>(peer_.rank())) return;
  first_[0] += 1;
  last_[0] += 1;
}

uint64_t PeerBench::check(uint64_t seed, size_t count) {
  const Pattern pattern = pattern_of(peer_, seed);
  switch (options_.collective) {
    case Collective::kReduceScatter: return check_own_part(pattern, count);
    case Collective::kAllGather: return check_gathered(pattern, out_, count / peer_.ranks());
    case Collective::kBoth:
      return check_own_part(pattern, count) + check_gathered(pattern, gathered_, count / peer_.ranks());
    default: return pattern.count_wrong(bytes_of(out_), count);
  }
}

uint64_t PeerBench::check_own_part(const Pattern& pattern, size_t count) {
  const size_t part = count / peer_.ranks();
  pattern.fill_result(count, bytes_of(expected_));
  return count_different(out_.data(), expected_.data() + part * peer_.rank(), part);
}

uint64_t PeerBench::check_gathered(const Pattern& pattern, const std::vector<float>& gathered, size_t part) {
  uint64_t wrong = 0;
  for (uint32_t rank = 0; rank < peer_.ranks(); ++rank) {
    pattern.fill(rank, part, bytes_of(expected_));
    wrong += count_different(gathered.data() + part * rank, expected_.data(), part);
  }
  return wrong;
}

void PeerBench::call(const std::vector<float>& in, size_t count) {
  const size_t part = count / peer_.ranks();
  switch (options_.collective) {
    case Collective::kReduceScatter: return peer_.reduce_scatter(in.data(), out_.data(), part);
    case Collective::kAllGather: return peer_.all_gather(in.data(), out_.data(), part);
    case Collective::kBoth:
      return peer_.reduce_scatter_and_all_gather(in.data(), out_.data(), in.data(), gathered_.data(), part);
    default: return peer_.allreduce(in.data(), out_.data(), count);
  }
}

// Returns the seconds of one operation. For an in-place algorithm, `refill` first copies the data to the
// buffer; the copy is not timed.
double PeerBench::run_operation(const std::vector<float>& in, size_t count, bool refill) {
  if (peer_.is_in_place(options_.collective) && refill) {
    const double before = thread_cpu_seconds();
    std::memcpy(out_.data(), in.data(), count * sizeof(float));
    copy_cpu_ += thread_cpu_seconds() - before;
  }
  const Nanos begin = monotonic_now();
  call(in, count);
  return seconds_since(begin);
}

// Small operations go on until a kernel that began with several ranks on one core has spread them: all timed
// ones may take less time than that.
void PeerBench::warm_up(size_t count) {
  const auto run = [&](uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) static_cast<void>(run_operation(first_, count, true));
  };
  if (options_.warmup == 0) return;
  const Nanos begin = monotonic_now();
  run(options_.warmup);
  const double seconds = mean_of_ranks(seconds_since(begin));
  if (seconds < kLeastWarmup) run(static_cast<uint64_t>((kLeastWarmup / seconds - 1) * options_.warmup));
}

uint64_t PeerBench::first_operation(size_t count) {
  std::fill_n(out_.begin(), count, 0.0F);
  std::fill(gathered_.begin(), gathered_.end(), 0.0F);
  static_cast<void>(run_operation(first_, count, true));
  return check(kFirstSeed, count);
}

void PeerBench::begin_loop() {
  peer_.barrier();
  copy_cpu_ = 0;
  sent_at_begin_ = sent_bytes_of(options_.interface);
  cpu_at_begin_ = own_cpu_seconds();
}

// The barrier lets the other ranks of this host send the rest of their last operation.
PeerBench::LoopCost PeerBench::end_loop() {
  LoopCost cost{.cpu_seconds = own_cpu_seconds() - cpu_at_begin_ - copy_cpu_};
  peer_.barrier();
  cost.sent_bytes = sent_bytes_of(options_.interface) - sent_at_begin_;
  return cost;
}

PeerResult PeerBench::combine(uint64_t bytes, std::vector<double> seconds, LoopCost cost, uint64_t wrong) {
  const size_t times = seconds.size();
  seconds.insert(seconds.end(),
                 {cost.cpu_seconds, static_cast<double>(wrong), static_cast<double>(cost.sent_bytes)});
  PeerResult result;
  result.bytes = bytes;
  std::vector<double> slowest(times, 0);
  const std::vector<double> all = peer_.gather(seconds);
  for (auto rank = all.begin(); rank != all.end(); rank += static_cast<std::ptrdiff_t>(seconds.size())) {
    for (size_t i = 0; i < times; ++i) slowest[i] = std::max(slowest[i], rank[i]);
    result.cpu_seconds.push_back(rank[times]);
    result.wrong += static_cast<uint64_t>(rank[times + 1]);
    result.sent_bytes.push_back(static_cast<uint64_t>(rank[times + 2]));
  }
  const auto loop = slowest.begin() + options_.iterations;
  result.operation_seconds.assign(slowest.begin(), loop);
  result.loop_seconds.assign(loop, slowest.end());
  return result;
}

PeerResult PeerBench::measure(uint64_t bytes) {
  const size_t count = bytes / sizeof(float);
  fill(count);
  uint64_t wrong = first_operation(count);
  warm_up(count);
  begin_loop();
  std::vector<double> figures;
  double total = 0;
  for (uint32_t i = 0; i < options_.iterations; ++i) {
    figures.push_back(run_operation(i + 1 < options_.iterations ? first_ : last_, count, true));
    total += figures.back();
  }
  const LoopCost cost = end_loop();
  wrong += check(kLastSeed, count);
  figures.push_back(total);
  return combine(bytes, std::move(figures), cost, wrong);
}

PeerResult PeerBench::replay(const Trace& trace) {
  fill(first_.size());
  uint64_t wrong = first_operation(trace.buckets.front().bytes / sizeof(float));
  std::vector<double> figures(2 * size_t{options_.iterations});
  const uint32_t passes = options_.warmup + options_.iterations;
  for (uint32_t pass = 0; pass < passes; ++pass) {
    if (pass == options_.warmup) {
      begin_loop();
    } else {
      peer_.barrier();
    }
    const Nanos begin = monotonic_now();
    double allreduce_time = 0;
    for (const Bucket& bucket : trace.buckets) {
      const bool is_last = pass + 1 == passes && &bucket == &trace.buckets.back();
      sleep_until(begin + static_cast<Nanos>(bucket.ready_us) * kMicrosecond);
      // In place, an operation reduces the result of the operation before. The times are valid, and only the
      // last result is checked.
      allreduce_time += run_operation(is_last ? last_ : first_, bucket.bytes / sizeof(float), is_last);
    }
    if (pass < options_.warmup) continue;
    figures[pass - options_.warmup] = seconds_since(begin);
    figures[options_.iterations + pass - options_.warmup] = allreduce_time;
  }
  const LoopCost cost = end_loop();
  wrong += check(kLastSeed, trace.buckets.back().bytes / sizeof(float));
  return combine(trace.bytes(), std::move(figures), cost, wrong);
}

}  // namespace sluice::bench
