#include "nccl_plugin/tuner/tuner.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "core/units.h"
#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/process_stats.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl::tuner {
namespace {

bool has_collnet(const float* table, int algorithms, int protocols) noexcept {
  if (protocols <= kSimple || algorithms <= kCollNetChain) return false;
  return table[kCollNetDirect * protocols + kSimple] >= 0 || table[kCollNetChain * protocols + kSimple] >= 0;
}

}  // namespace

const char* offload_off_reason(size_t ranks, size_t nodes,
                               const char* (*get_variable)(const char*)) noexcept {
  const auto value = [get_variable](const char* name) {
    const char* v = get_variable(name);
    return v != nullptr ? v : "";
  };
  if (nodes < 2) return "one node: its allreduces do not use the network";
  if (std::strcmp(value("NCCL_COLLNET_ENABLE"), "1") != 0) {
    return "NCCL_COLLNET_ENABLE=1 is not set; set it in the environment or in /etc/nccl.conf (sluice install "
           "--nccl-conf)";
  }
  if (const char* threshold = value("NCCL_COLLNET_NODE_THRESHOLD");
      *threshold != '\0' && std::strtoull(threshold, nullptr, 10) > nodes) {
    return "NCCL_COLLNET_NODE_THRESHOLD is higher than the number of nodes; lower or unset it";
  }
  if (const char* protocols = value("NCCL_PROTO");
      *protocols != '\0' && std::strstr(protocols, "imple") == nullptr) {
    return "NCCL_PROTO excludes Simple, the only protocol of CollNet; add Simple or unset NCCL_PROTO";
  }
  if (ranks > 8 * nodes)
    return "more than 8 GPUs per node: NCCL has no CollNet there; use at most 8 GPUs per node";
  return "NCCL has no CollNet for this communicator; possible causes: ncclCommSplit without shared resources "
         "(set NCCL_COMM_SPLIT_SHARE_RESOURCES=1), an unsupported operator or type, a rank without the "
         "plugin, or GPUs without a path to the network";
}

Tuner::Decision Tuner::decide(bool collnet) const {
  const Settings& s = settings();
  const ProcessStats& stats = process_stats();
  const auto off = [](std::string reason) { return Decision{.offload = false, .text = std::move(reason)}; };
  const std::string nodes = std::to_string(nodes_);
  if (collnet && s.offload == OffloadPolicy::kNever) return off("SLUICE_OFFLOAD=never; unset it to offload");
  if (collnet && s.offload == OffloadPolicy::kAuto && nodes_ < s.min_nodes) {
    return off(nodes + " nodes: offload pays from " + std::to_string(s.min_nodes) +
               " nodes on; set SLUICE_MIN_NODES to change this limit");
  }
  if (collnet && s.offload == OffloadPolicy::kAuto &&
      !pool_is_wide_enough({.nodes = nodes_, .ranks = ranks_}, s.pool_size())) {
    return off(std::to_string(s.pool_size()) + " reducers are too few for " + nodes +
               " nodes of the same link speed: a ring is faster; add reducers, or set SLUICE_OFFLOAD=always "
               "if the reducers have faster links");
  }
  if (collnet) {
    return {.offload = true,
            .text = s.offload == OffloadPolicy::kAlways
                        ? "any size"
                        : std::to_string(s.min_bytes / kKiB) + " KiB and more"};
  }
  if (!capabilities().reason.empty()) return off(capabilities().reason);
  if (stats.failures() > 0 && stats.connections() == 0) return off(stats.last_failure());
  return off(
      offload_off_reason(ranks_, nodes_, [](const char* name) -> const char* { return std::getenv(name); }));
}

void Tuner::log_once(bool collnet) noexcept {
  if (logged_.exchange(true, std::memory_order_relaxed)) return;
  try {
    decision_ = decide(collnet);
    if (decision_.offload) {
      info("offload ON %zu reducers, %zu ranks on %zu nodes, allreduces of %s", settings().pool_size(),
           ranks_, nodes_, decision_.text.c_str());
    } else if (settings().offload == OffloadPolicy::kNever && collnet) {
      info("offload OFF (%s), %zu ranks on %zu nodes", decision_.text.c_str(), ranks_, nodes_);
    } else {
      info("offload OFF (%s)", decision_.text.c_str());
    }
  } catch (const std::exception&) {  // a missing log line must not fail the job
  }
}

void Tuner::count_allreduce(uint64_t bytes, bool offload) noexcept {
  process_stats().add_allreduce(bytes, offload);
  allreduces_ += 1;
  allreduce_bytes_ += bytes;
  if (offload) offload_bytes_ += bytes;
}

Tuner::~Tuner() {
  if (!has_stats_file()) return;
  try {
    StatsLine line("communicator");
    line.number("ranks", ranks_).number("nodes", nodes_).number("reducers", settings().pool_size());
    line.number("allreduces", allreduces_)
        .number("allreduce_bytes", allreduce_bytes_)
        .number("offload_bytes", offload_bytes_);
    line.boolean("offload", decision_.offload);
    if (!decision_.offload)
      line.text("why_not", allreduces_ == 0 ? "the communicator ran no allreduce" : decision_.text);
    append_stats(line);
  } catch (const std::exception&) {  // out of memory: the line is lost
  }
}

void Tuner::adjust_costs(int function, uint64_t bytes, float* table, int algorithms, int protocols) noexcept {
  const CollectiveQuery q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  const bool collnet = has_collnet(table, algorithms, protocols);
  const bool offload = tuner::adjust_costs(q, settings(), table, algorithms, protocols);
  if (function != kAllReduce) return;
  count_allreduce(bytes, offload);
  log_once(collnet);
}

void Tuner::choose_algorithm(int function, uint64_t bytes, bool collnet, int* algorithm,
                             int* protocol) noexcept {
  if (function != kAllReduce) return;
  const CollectiveQuery q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  const bool offload = collnet && should_offload(q, settings());
  count_allreduce(bytes, offload);
  log_once(collnet);
  if (!collnet) return;
  if (offload) {
    *algorithm = kCollNetChain;
    *protocol = kSimple;
  } else if (nodes_ > 1) {
    // NCCL estimates the chain as cheaper than the ring almost everywhere, and v2 cannot exclude an
    // algorithm. So this names the algorithm that NCCL would choose without CollNet.
    *algorithm = bytes <= 64 * kKiB ? kTree : kRing;
    *protocol = bytes <= 512 * kKiB ? kLL : kSimple;
  }
}

size_t Tuner::chunk_bytes(int function, uint64_t bytes, int algorithm, int channels,
                          size_t proposed) const noexcept {
  return tuner::chunk_bytes({.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_},
                            algorithm, channels, proposed);
}

}  // namespace sluice::nccl::tuner
