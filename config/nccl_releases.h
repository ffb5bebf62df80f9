// NCCL's releases: the range that the plugin knows, and the defects of NCCL that concern its users. Read in
// NCCL's source; docs/reference/compatibility.md has the evidence.
//
// A release is the number that ncclGetVersion() returns from 2.9 on: 22809 is 2.28.9. 0 is an unknown
// release.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice::config {

// Below the oldest, NCCL does not keep the requests of a communicator in one order on all ranks, so the
// plugin offers no CollNet to it.
inline constexpr int kOldestCollNetRelease = 22000;
// The newest release whose interfaces were compared with the plugin's.
inline constexpr int kNewestKnownRelease = 23203;

// A defect or a rule of some releases that changes what a user of the plugin has to do.
enum class NcclDefect {
  kTunerNotAsked,      // 2.20: no call of the plugin's tuner
  kTunerLoadedOnce,    // 2.21: no tuner after the last communicator was destroyed
  kChildLosesCollNet,  // a child of ncclCommSplit with as many nodes has no CollNet
  kChainHeads,         // CollNetChain uses heads that were never connected
  kAbortHangs,         // ncclCommAbort waits for open network operations
  kErrorsDropped,      // the proxy thread drops the errors of every network
  kPluginForgotten,    // the name of the plugin is lost when the last communicator is destroyed
  kUnequalNodes,       // a node with another number of CollNet devices fails the job
};

struct NcclDefectNote {
  NcclDefect defect;
  int first;                // the first release that has it
  int last;                 // the last one; kNoLast: no release known that mends it
  std::string_view effect;  // "CollNetChain crashes with several interfaces per node and no NVSwitch"
  std::string_view remedy;  // what the user can set or do
};
inline constexpr int kNoLast = 99999;

// All notes, in the order of releases.
[[nodiscard]] std::span<const NcclDefectNote> nccl_defects() noexcept;

// False for an unknown release.
[[nodiscard]] bool has_defect(int release, NcclDefect defect) noexcept;

// The release of a number that ncclGetVersion() returned. Up to 2.8 it is major * 1000 + minor * 100 + patch.
[[nodiscard]] constexpr int release_of_version(int version) noexcept {
  return version < 10'000 ? version / 1000 * 10'000 + version % 1000 : version;
}

// "2.28.9"; "unknown" for 0.
[[nodiscard]] std::string release_text(int release);

}  // namespace sluice::config
