#include "config/nccl_releases.h"

#include <algorithm>
#include <array>

namespace sluice::config {

namespace {

// Constants: threads of NCCL may ask while the process ends, after the destructors of static objects.
constexpr auto kNotes = std::to_array<NcclDefectNote>({
    {NcclDefect::kTunerNotAsked, 22000, 22099,
     "NCCL does not call the plugin's tuner, and chooses algorithms by its own estimate",
     "SLUICE_MIN_BYTES and SLUICE_MIN_NODES have no effect; use NCCL 2.22 or newer"},
    {NcclDefect::kTunerLoadedOnce, 22100, 22199,
     "NCCL calls the plugin's tuner no more after the last communicator was destroyed",
     "keep one communicator open, or use NCCL 2.22 or newer"},
    {NcclDefect::kChildLosesCollNet, 22200, kNoLast,
     "a child of ncclCommSplit with as many nodes as its parent has no CollNet",
     "set NCCL_COMM_SPLIT_SHARE_RESOURCES=1; or, from 2.27 on, leave NCCL_COLLNET_ENABLE unset and set "
     "config.collnetEnable for the child only"},
    {NcclDefect::kChainHeads, 22200, 23004,
     "CollNetChain crashes with several interfaces and GPUs per node and no NVSwitch, so the plugin keeps "
     "CollNet off there",
     "use NCCL 2.30.7 or newer, or offer one interface by SLUICE_IFNAME"},
    {NcclDefect::kAbortHangs, 22300, 22599, "ncclCommAbort hangs while a network operation is open",
     "end the processes, or use NCCL 2.22, 2.26 or newer"},
    {NcclDefect::kErrorsDropped, 22600, 22802,
     "NCCL drops the errors of its network: ranks that outlive another one wait without an error",
     "use NCCL 2.28.3 or newer, or end jobs by a timeout (in PyTorch the watchdog of the process group)"},
    {NcclDefect::kPluginForgotten, 22803, 22907,
     "NCCL unloads the plugin with the last communicator and forgets NCCL_NET_PLUGIN",
     "set NCCL_NET_PLUGIN_REF_COUNT=1"},
    {NcclDefect::kUnequalNodes, 23003, kNoLast,
     "NCCL fails a job in which a node has another number of CollNet devices",
     "install the plugin and set SLUICE_REDUCERS on all nodes"},
});

}  // namespace

std::span<const NcclDefectNote> nccl_defects() noexcept {
  return kNotes;
}

bool has_defect(int release, NcclDefect defect) noexcept {
  return std::ranges::any_of(nccl_defects(), [&](const NcclDefectNote& note) {
    return note.defect == defect && note.first <= release && release <= note.last;
  });
}

std::string release_text(int release) {
  if (release == 0) return "unknown";
  return std::to_string(release / 10000) + "." + std::to_string(release / 100 % 100) + "." +
         std::to_string(release % 100);
}

}  // namespace sluice::config
