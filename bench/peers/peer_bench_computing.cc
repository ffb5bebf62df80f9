#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "bench/peers/peer_bench.h"
#include "bench/peers/peer_times.h"

namespace sluice::bench {
namespace {

constexpr double kLeastSeconds = 1;  // of a part: rates of two parts are compared
// Operations that take microseconds alone can take milliseconds where more threads compute than there are
// cores: a part ends early when it has lasted this many times as long as planned.
constexpr double kMostOfPlan = 10;
constexpr size_t kOperationsBetweenChecks = 256;

}  // namespace

// All ranks get the same value, so that they agree on what follows from it.
double PeerBench::mean_of_ranks(double value) {
  constexpr size_t kCount = 64;  // some algorithms need an element for each rank
  const std::vector<float> in(kCount, static_cast<float>(value));
  std::vector<float> out = in;
  peer_.allreduce(in.data(), out.data(), kCount);
  return static_cast<double>(out[0]) / peer_.ranks();
}

// Ranks sleep between operations: libraries that poll would take the cores in a barrier.
PeerBench::Part PeerBench::run_part(size_t count, size_t operations, double period, bool reduces,
                                    bool computes) {
  Part part;
  begin_loop();
  if (computes) computing_->resume();
  const ComputingThreads::Progress before = computing_->progress();
  const Nanos begin = monotonic_now();
  const auto start_of = [&](size_t i) {
    return begin + static_cast<Nanos>(1e9 * period * static_cast<double>(i));
  };
  const double most = kMostOfPlan * period * static_cast<double>(operations);
  const auto is_late = [&](size_t done) {
    const bool checks = done > 0 && done % kOperationsBetweenChecks == 0;
    return checks && mean_of_ranks(seconds_since(begin)) > most;
  };
  if (reduces) {
    for (size_t i = 0; i + 1 < operations && !is_late(i); ++i) {
      sleep_until(start_of(i));
      part.times.push_back(run_operation(first_, count, true));
    }
    sleep_until(start_of(part.times.size()));
    part.times.push_back(run_operation(last_, count, true));
  }
  sleep_until(start_of(reduces ? part.times.size() : operations));
  computing_->pause();
  part.seconds = seconds_since(begin);
  const ComputingThreads::Progress after = computing_->progress();
  part.units = static_cast<double>(after.units - before.units);
  part.cost = end_loop();
  part.cost.cpu_seconds -= after.cpu_seconds - before.cpu_seconds;
  return part;
}

// Parts: operations alone, then computation alone, both, and computation alone again, since a machine's speed
// may drift.
PeerResult PeerBench::measure_beside_computing(uint64_t bytes) {
  const size_t count = bytes / sizeof(float);
  fill(count);
  uint64_t wrong = first_operation(count);
  const uint32_t warmup = std::max(options_.warmup, 3U);
  const Nanos begin = monotonic_now();
  for (uint32_t i = 0; i < warmup; ++i) static_cast<void>(run_operation(first_, count, true));
  const double period = mean_of_ranks(seconds_since(begin) / warmup) / options_.computing_share;
  const size_t operations =
      std::max<size_t>(options_.iterations, std::lround(std::ceil(kLeastSeconds / period)));
  if (!computing_) computing_.emplace(peer_.rank(), peer_.ranks());

  const auto run = [&](bool reduces, bool computes) {
    return run_part(count, operations, period, reduces, computes);
  };
  const Part alone = run(true, false);
  const Part first = run(false, true);
  const Part beside = run(true, true);
  wrong += check(kLastSeed, count);
  const Part second = run(false, true);
  const double rate_alone = (first.units + second.units) / (first.seconds + second.seconds);
  return combine_parts(bytes, period, alone, beside, rate_alone, wrong);
}

PeerResult PeerBench::combine_parts(uint64_t bytes, double period, const Part& alone, const Part& beside,
                                    double rate_alone, uint64_t wrong) {
  enum Fact : uint8_t { kCpuAlone, kSent, kSeconds, kCpuBeside, kRateBeside, kRateAlone, kWrong, kFacts };
  std::vector<double> own(kFacts);
  own[kCpuAlone] = alone.cost.cpu_seconds;
  own[kSent] = static_cast<double>(alone.cost.sent_bytes);
  own[kSeconds] = beside.seconds;
  own[kCpuBeside] = beside.cost.cpu_seconds;
  own[kRateBeside] = beside.units / beside.seconds;
  own[kRateAlone] = rate_alone;
  own[kWrong] = static_cast<double>(wrong);
  const size_t operations = alone.times.size(), operations_beside = beside.times.size();
  own.insert(own.end(), alone.times.begin(), alone.times.end());
  own.insert(own.end(), beside.times.begin(), beside.times.end());
  const std::vector<double> all = peer_.gather(own);

  PeerResult result;
  result.bytes = bytes;
  result.operation_seconds.assign(operations, 0);
  ComputingResult computing;
  computing.period_seconds = period;
  computing.beside_seconds.assign(operations_beside, 0);
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  double rate_of_all_beside = 0, rate_of_all_alone = 0;
  for (auto rank = all.begin(); rank != all.end(); rank += static_cast<std::ptrdiff_t>(own.size())) {
    // As many operations as in the other part, in its time.
    computing.sums += rank[kCpuAlone] * static_cast<double>(operations_beside) /
                      (static_cast<double>(operations) * cores * rank[kSeconds]);
    computing.sums_beside += rank[kCpuBeside] / (cores * rank[kSeconds]);
    rate_of_all_beside += rank[kRateBeside];
    rate_of_all_alone += rank[kRateAlone];
    result.cpu_seconds.push_back(rank[kCpuAlone]);
    result.sent_bytes.push_back(static_cast<uint64_t>(rank[kSent]));
    result.wrong += static_cast<uint64_t>(rank[kWrong]);
    const auto keep_slowest = [&](std::vector<double>& slowest, std::ptrdiff_t from) {
      for (size_t i = 0; i < slowest.size(); ++i)
        slowest[i] = std::max(slowest[i], rank[kFacts + from + static_cast<std::ptrdiff_t>(i)]);
    };
    keep_slowest(result.operation_seconds, 0);
    keep_slowest(computing.beside_seconds, static_cast<std::ptrdiff_t>(operations));
  }
  result.loop_seconds = {
      std::accumulate(result.operation_seconds.begin(), result.operation_seconds.end(), 0.0)};
  if (rate_of_all_alone > 0) computing.loss = 1 - rate_of_all_beside / rate_of_all_alone;
  result.computing = std::move(computing);
  return result;
}

}  // namespace sluice::bench
