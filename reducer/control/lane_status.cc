#include "reducer/control/lane_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "wire/dtype.h"

namespace sluice::reducer {
namespace {

// JSON keys of the counters that are summed over the lanes.
constexpr std::pair<const char*, Counter LaneCounters::*> kSums[] = {
    {"frames_in", &LaneCounters::frames_in},
    {"frames_out", &LaneCounters::frames_out},
    {"bytes_copied", &LaneCounters::bytes_copied},
    {"bytes_copied_out", &LaneCounters::bytes_copied_out},
    {"rdma_work_requests", &LaneCounters::work_requests},
    {"rdma_doorbells", &LaneCounters::doorbells},
    {"rdma_completions", &LaneCounters::completions},
    {"receive_calls", &LaneCounters::receive_calls},
    {"send_calls", &LaneCounters::send_calls},
    {"chunks", &LaneCounters::chunks},
    {"send_blocked_ns", &LaneCounters::send_blocked_ns},
    {"turns", &LaneCounters::turns},
    {"busy_turns", &LaneCounters::busy_turns},
    {"results_resent", &LaneCounters::results_resent},
    {"contributions_dropped", &LaneCounters::contributions_dropped},
    {"view_moves", &LaneCounters::view_moves},
    {"kept_results", &LaneCounters::kept_results},
};

struct PayloadSum {
  uint64_t in = 0, out = 0;
  void add(const LaneCounters::PayloadBytes& bytes) noexcept {
    in += bytes.bytes_in.get();
    out += bytes.bytes_out.get();
  }
};

struct HistogramSum {
  std::array<uint64_t, DurationHistogram::kBuckets> buckets{};
  uint64_t sum_us = 0;
  void add(const DurationHistogram& of_lane) noexcept {
    for (size_t i = 0; i < buckets.size(); ++i) buckets[i] += of_lane.bucket(i);
    sum_us += of_lane.sum_us();
  }
};

nlohmann::json transport_status(const PayloadSum& bytes, uint64_t connections) {
  return {{"bytes_in", bytes.in}, {"bytes_out", bytes.out}, {"connections", connections}};
}

// In whole milliseconds, since the status of a thousand lanes must fit into one control frame.
double seconds(const Counter& nanoseconds) {
  const uint64_t milliseconds = nanoseconds.get() / kMillisecond;
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace

void add_reasons(nlohmann::json& into, const std::array<Counter, kErrcCounters>& counts) {
  for (size_t i = 0; i < kErrcCounters; ++i) {
    const uint64_t n = counts[i].get();
    if (n == 0) continue;
    const std::string key(to_string(static_cast<Errc>(i)));
    into[key] = into.value(key, uint64_t{0}) + n;
  }
}

void add_lanes(nlohmann::json& status, std::span<const std::unique_ptr<LaneThread>> lanes,
               uint64_t rdma_pairs) {
  PayloadSum tcp, rdma;
  uint64_t connections = 0, straggler_max = 0, ring_full = 0;
  std::array<std::array<uint64_t, wire::kOpCount>, wire::kDTypeCount> folded{};
  std::array<std::array<double, wire::kOpCount>, wire::kDTypeCount> operations{};
  HistogramSum waits;
  std::array<HistogramSum, wire::kOpCount> durations;
  nlohmann::json data = nlohmann::json::object(), busy = nlohmann::json::array(), folding = busy;
  for (const auto& thread : lanes) {
    const LaneCounters& c = thread->lane().counters();
    for (const auto& [key, counter] : kSums) data[key] = data.value(key, uint64_t{0}) + (c.*counter).get();
    tcp.add(c.tcp);
    rdma.add(c.rdma);
    const uint64_t detached = c.detached.get();
    connections += std::max(c.attached.get(), detached) - detached;  // the two loads are not ordered
    for (size_t t = 0; t < folded.size(); ++t) {
      for (size_t o = 0; o < folded[t].size(); ++o) {
        folded[t][o] += c.folded[t][o].get();
        operations[t][o] += c.operations[t][o].get();
      }
    }
    waits.add(c.straggler);
    for (size_t o = 0; o < durations.size(); ++o) durations[o].add(c.operation_durations[o]);
    straggler_max = std::max(straggler_max, c.straggler_us_max.get());
    ring_full += thread->lane().ring_full_count();
    busy.push_back(seconds(c.busy_ns));
    folding.push_back(seconds(c.fold_ns));
  }
  uint64_t all_folded = 0;
  double all_operations = 0;
  nlohmann::json by_type = nlohmann::json::object(), operations_by_type = by_type;
  for (size_t t = 0; t < folded.size(); ++t) {
    for (size_t o = 0; o < folded[t].size(); ++o) {
      const std::string type(to_string(static_cast<wire::DType>(t))), op(to_string(static_cast<wire::Op>(o)));
      if (folded[t][o] != 0) by_type[type][op] = folded[t][o];
      if (operations[t][o] != 0) operations_by_type[type][op] = operations[t][o];
      all_folded += folded[t][o];
      all_operations += operations[t][o];
    }
  }
  data["bytes_in"] = tcp.in + rdma.in;
  data["bytes_out"] = tcp.out + rdma.out;
  data["bytes_folded"] = all_folded;
  data["operations"] = all_operations;
  data["straggler_us"] = waits.sum_us;
  data["straggler_us_max"] = straggler_max;
  data["ring_full"] = ring_full;
  rdma_pairs = std::min(rdma_pairs, connections);
  status["data"] = std::move(data);
  status["transports"] = {{"tcp", transport_status(tcp, connections - rdma_pairs)},
                          {"rdma", transport_status(rdma, rdma_pairs)}};
  status["folded"] = std::move(by_type);
  status["operations"] = std::move(operations_by_type);
  status["straggler_waits"] = {{"first_bound_us", DurationHistogram::kFirstBoundUs},
                               {"counts", waits.buckets}};
  nlohmann::json& by_op = status["operation_durations"] = nlohmann::json::object();
  for (size_t o = 0; o < durations.size(); ++o) {
    if (std::ranges::count(durations[o].buckets, 0u) == DurationHistogram::kBuckets) continue;
    const std::string op(to_string(static_cast<wire::Op>(o)));
    by_op[op] = {{"first_bound_us", DurationHistogram::kFirstBoundUs},
                 {"counts", durations[o].buckets},
                 {"sum_us", durations[o].sum_us}};
  }
  status["lane_busy_seconds"] = std::move(busy);
  status["lane_fold_seconds"] = std::move(folding);
}

}  // namespace sluice::reducer
