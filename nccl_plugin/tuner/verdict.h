// Decides whether a communicator is offloaded, and the one reason if it is not. Functions of facts, so that
// tests need no NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/host/off_reason.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/tuner/cost_table.h"

namespace sluice::nccl::tuner {

struct Verdict {
  OffReason reason = OffReason::kNone;  // kNone: offload is ON
  std::string text;                     // ON: the sizes that are offloaded; OFF: the reason and the remedy
  [[nodiscard]] bool is_on() const noexcept { return reason == OffReason::kNone; }
};

// What the plugin knows about a communicator.
struct OffloadFacts {
  size_t ranks = 0;
  size_t nodes = 0;
  int release = 0;           // of NCCL; 0: unknown
  bool has_collnet = false;  // in NCCL's cost table
  bool has_direct = false;   // CollNetDirect too, which only NVSwitch gives
  std::string refusal;       // why the nodes could not join the reducers; empty: they could, or did not try
  bool has_parent = false;   // a live communicator of as many nodes has CollNet
  uint64_t parent_comm_id = 0;  // its commId in NCCL's log; 0: not known
};

// True where CollNetChain would crash unless the node has NVSwitch (config::NcclDefect::kChainHeads): several
// CollNet devices and several GPUs per node. NCCL takes the heads of CollNet from the graph of CollNetDirect,
// which without NVSwitch can miss the GPU at which the chain of another interface begins. The plugin does not
// see NVLink, so GPUs with NVLink and no NVSwitch count as well. All ranks decide alike, since nodes of a job
// have equal devices.
[[nodiscard]] bool chain_may_crash(size_t ranks, size_t nodes, int release, size_t devices);

// "4 reducers", "4 reducers, 35 % co-located" or "no dedicated reducers, 100 % co-located".
[[nodiscard]] std::string reducers_text(const Settings& settings, const OffloadRange& range);

// Returns the verdict that needs nothing of NCCL but the size of the communicator; empty if it depends on
// CollNet.
[[nodiscard]] std::optional<Verdict> decide_early(const OffloadFacts& facts, const Settings& settings,
                                                  const Capabilities& capabilities);
// Returns the verdict when NCCL has asked about an allreduce. `get_variable` is getenv, or a fake for tests.
[[nodiscard]] Verdict decide(const OffloadFacts& facts, const Settings& settings,
                             const Capabilities& capabilities, const char* (*get_variable)(const char*));

// Returns why NCCL has no CollNet in any communicator, from its variables only; empty if they permit it.
[[nodiscard]] std::optional<Verdict> variables_verdict(int release, const char* (*get_variable)(const char*));

// Logs, once per process, that NCCL's variables exclude offload, if this NCCL asks no tuner (2.20): then no
// tuner logs a verdict, and a communicator without CollNet calls nothing else of the plugin.
void log_verdict_without_tuner() noexcept;

// getenv, for the functions above.
[[nodiscard]] const char* read_variable(const char* name) noexcept;

}  // namespace sluice::nccl::tuner
