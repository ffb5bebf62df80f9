// Finds the release of the NCCL that loaded the plugin. Defects of NCCL that the plugin must avoid or name
// differ between releases with the same interface version, so the version of the tables is not enough.
//
// Threads: any. No function throws.
#pragma once

#include <string>

#include "nccl_plugin/abi/types.h"

namespace sluice::nccl {

// Returns the release, as in config/nccl_releases.h, of the library that contains `logger`, or 0. NCCL's
// logger is a function of NCCL, so it leads to the right library also when several are loaded, and when the
// application loaded it with RTLD_LOCAL, where a lookup of ncclGetVersion in all libraries fails.
[[nodiscard]] int find_release(abi::Logger logger) noexcept;

// Records who called init of net: NCCL's logger and the version of the table. Logs once if NCCL is too old
// for CollNet or newer than the plugin knows.
void record_nccl(abi::Logger logger, int net_version) noexcept;

// Records the release if it is not known yet: NCCL may use the tuner without net.
void record_release(abi::Logger logger) noexcept;

// The recorded release; 0: unknown.
[[nodiscard]] int nccl_release() noexcept;
// Returns why this NCCL has no CollNet with the plugin, with both releases; empty if it has. `release` may be
// 0: NCCL uses the newest table that it knows, so a table of net below v8 shows a release below 2.20.
[[nodiscard]] std::string too_old_text(int release, int net_version);
// Returns that `release` is newer than the plugin knows; empty if it is not.
[[nodiscard]] std::string too_new_text(int release, int net_version);

}  // namespace sluice::nccl
