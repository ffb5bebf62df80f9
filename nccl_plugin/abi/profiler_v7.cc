// ncclProfiler_v7: NCCL 2.31 and newer.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v7, ProfilerTable<7>);
SLUICE_CHECK_LAYOUT(profiler_event_v7, ProfilerEvent<7>);
SLUICE_CHECK_LAYOUT(profiler_collective_v7, ProfilerCollective<7>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v7, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v7, ProfilerKernelChannel<7>);

extern "C" {
SLUICE_EXPORTED ProfilerTable<7> ncclProfiler_v7;
}

}  // namespace sluice::nccl::abi
