#include "nccl_plugin/tuner/verdict.h"

#include <strings.h>

#include <array>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "config/nccl_algorithms.h"
#include "config/nccl_releases.h"
#include "core/units.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/nccl_release.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl::tuner {
namespace {

constexpr int kFirstCollNetConfig = 22700;   // ncclConfig_t.collnetEnable
constexpr int kFirstJointSelection = 23100;  // NCCL_ALGO, NCCL_PROTO and NCCL_SYM_KERNEL depend on each other
constexpr size_t kMostGpusPerNode = 8;

Verdict off(OffReason reason, std::string text) {
  return {.reason = reason, .text = std::move(text)};
}

std::string count(size_t n, const char* noun) {
  return std::to_string(n) + " " + noun;
}

std::string_view value_of(const char* (*get_variable)(const char*), const char* name) {
  const char* const value = get_variable(name);
  return value != nullptr ? value : "";
}

std::string algorithm_exclusion(int release, const char* (*get_variable)(const char*)) {
  const config::NcclAlgorithms all{value_of(get_variable, "NCCL_ALGO"), value_of(get_variable, "NCCL_PROTO"),
                                   value_of(get_variable, "NCCL_SYM_KERNEL")};
  if (release >= kFirstJointSelection) return config::collnet_exclusion(all);
  std::string text = config::collnet_exclusion({all.algo, {}, {}});
  return text.empty() ? config::collnet_exclusion({{}, all.proto, {}}) : text;
}

// The sizes that are offloaded.
std::string sizes_text(const OffloadFacts& facts, const Settings& s) {
  if (s.offload == OffloadPolicy::kAlways) return "any size";
  const auto range = offload_range({.nodes = facts.nodes, .ranks = facts.ranks}, s);
  if (range.max_bytes == UINT64_MAX) return count(s.min_bytes / kKiB, "KiB and more");
  return count(s.min_bytes / kKiB, "to ") + count(range.max_bytes / kKiB, "KiB");
}

std::string child_text(const OffloadFacts& facts) {
  std::array<char, 40> id{};
  if (facts.parent_comm_id != 0)
    std::snprintf(id.data(), id.size(), " (commId 0x%" PRIx64 ")", facts.parent_comm_id);
  std::string text = "probably a child of a communicator with CollNet and as many nodes" +
                     std::string(id.data()) +
                     ": NCCL gives it no CollNet; set NCCL_COMM_SPLIT_SHARE_RESOURCES=1";
  if (facts.release == 0 || facts.release >= kFirstCollNetConfig)
    text += ", or leave NCCL_COLLNET_ENABLE unset and set config.collnetEnable=1 for the child only";
  return text;
}

}  // namespace

const char* read_variable(const char* name) noexcept {
  return std::getenv(name);
}

std::string reducers_text(const Settings& s, const OffloadRange& range) {
  std::string text = s.no_pool ? "no dedicated reducers" : count(s.pool_size(), "reducers");
  if (range.colocated_share > 0)
    text += ", " + count(static_cast<size_t>(std::lround(100 * range.colocated_share)), "% co-located");
  return text;
}

bool chain_may_crash(size_t ranks, size_t nodes, int release, size_t devices) {
  return devices > 1 && ranks > nodes && config::has_defect(release, config::NcclDefect::kChainHeads);
}

std::optional<Verdict> decide_early(const OffloadFacts& facts, const Settings& s, const Capabilities& c) {
  if (facts.nodes < 2) return off(OffReason::kOneNode, "one node: its allreduces do not use the network");
  if (s.offload == OffloadPolicy::kNever)
    return off(OffReason::kOffloadNever, "SLUICE_OFFLOAD=never; unset it to offload");
  if (c.collnet.empty()) return off(c.off_reason, c.reason);
  if (!facts.refusal.empty()) return off(OffReason::kRefused, facts.refusal);
  if (s.offload == OffloadPolicy::kAlways) return std::nullopt;
  if (facts.nodes < s.min_nodes) {
    return off(OffReason::kTooFewNodes,
               count(facts.nodes, "nodes: offload pays from ") +
                   count(s.min_nodes, "nodes on; set SLUICE_MIN_NODES to change this limit"));
  }
  if (const auto range = offload_range({.nodes = facts.nodes, .ranks = facts.ranks}, s); !range.pays) {
    if (range.colocated_share > 0) {
      return off(OffReason::kPoolTooNarrow,
                 reducers_text(s, range) + ", " +
                     count(facts.nodes,
                           "nodes of the same link speed: a ring is as fast; add reducers, lower "
                           "SLUICE_MIN_BYTES, or set SLUICE_OFFLOAD=always"));
    }
    return off(OffReason::kPoolTooNarrow,
               count(s.pool_size(), "reducers are too few for ") +
                   count(facts.nodes,
                         "nodes of the same link speed: a ring is faster; add reducers, or set "
                         "SLUICE_OFFLOAD=always if the reducers have faster links"));
  }
  return std::nullopt;
}

std::optional<Verdict> variables_verdict(int release, const char* (*get_variable)(const char*)) {
  if (value_of(get_variable, "NCCL_COLLNET_ENABLE") != "1") {
    return off(
        OffReason::kCollNetNotEnabled,
        "NCCL_COLLNET_ENABLE=1 is not set; set it in the environment or in /etc/nccl.conf (sluice install "
        "--nccl-conf)" +
            std::string(release >= kFirstCollNetConfig ? ", or set config.collnetEnable=1" : ""));
  }
  if (std::string text = algorithm_exclusion(release, get_variable); !text.empty())
    return off(OffReason::kAlgorithmExcluded, std::move(text));
  return std::nullopt;
}

Verdict decide(const OffloadFacts& facts, const Settings& s, const Capabilities& c,
               const char* (*get_variable)(const char*)) {
  if (auto early = decide_early(facts, s, c)) return std::move(*early);
  if (facts.has_collnet) {
    if (!facts.has_direct && chain_may_crash(facts.ranks, facts.nodes, facts.release, c.collnet.size())) {
      return off(
          OffReason::kChainHeads,
          "NCCL " + config::release_text(facts.release) +
              " crashes in CollNetChain with several interfaces and GPUs per node and no NVSwitch; use NCCL "
              "2.30.7 or newer, or offer one interface by SLUICE_IFNAME");
    }
    return {.reason = OffReason::kNone, .text = sizes_text(facts, s)};
  }
  if (const std::string net(value_of(get_variable, "NCCL_NET"));
      !net.empty() && strcasecmp(net.c_str(), s.net_name.c_str()) != 0) {
    return off(OffReason::kOtherNet,
               "NCCL_NET=" + net +
                   " selects another network, so NCCL uses no CollNet of this plugin; unset "
                   "NCCL_NET, or set SLUICE_NET_NAME=" +
                   net);
  }
  if (auto variables = variables_verdict(facts.release, get_variable)) return std::move(*variables);
  if (const std::string threshold(value_of(get_variable, "NCCL_COLLNET_NODE_THRESHOLD"));
      !threshold.empty() && std::strtoull(threshold.c_str(), nullptr, 10) > facts.nodes) {
    return off(OffReason::kNodeThreshold, "NCCL_COLLNET_NODE_THRESHOLD=" + threshold +
                                              " is higher than the " +
                                              count(facts.nodes, "nodes; lower or unset it"));
  }
  if (facts.ranks > kMostGpusPerNode * facts.nodes) {
    return off(OffReason::kTooManyGpus,
               "more than 8 GPUs per node: NCCL has no CollNet there; use at most 8 GPUs per node");
  }
  if (facts.has_parent) return off(OffReason::kChild, child_text(facts));
  return off(
      OffReason::kNoCollNet,
      "NCCL has no CollNet for this communicator; possible causes: ncclCommSplit without shared resources "
      "(set "
      "NCCL_COMM_SPLIT_SHARE_RESOURCES=1), an unsupported operator or type, a node without the plugin or "
      "SLUICE_REDUCERS, or GPUs without a path to the network");
}

void log_verdict_without_tuner() noexcept {
  static std::atomic<bool> logged{false};
  const int release = nccl_release();
  try {
    if (!config::has_defect(release, config::NcclDefect::kTunerNotAsked) || logged.exchange(true)) return;
    if (const auto verdict = variables_verdict(release, &read_variable)) {
      info("offload OFF (%s), all communicators: NCCL %s asks no tuner", verdict->text.c_str(),
           config::release_text(release).c_str());
      append_refusal(verdict->reason, verdict->text);
    }
  } catch (const std::exception&) {  // a missing log line must not fail the job
  }
}

}  // namespace sluice::nccl::tuner
