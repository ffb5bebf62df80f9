// ncclProfiler_v4: NCCL 2.27.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v4, ProfilerTable<4>);
SLUICE_CHECK_LAYOUT(profiler_event_v4, ProfilerEvent<4>);
SLUICE_CHECK_LAYOUT(profiler_collective_v4, ProfilerCollective<4>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v4, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v4, ProfilerKernelChannel<4>);

extern "C" {
SLUICE_EXPORTED ProfilerTable<4> ncclProfiler_v4;
}

}  // namespace sluice::nccl::abi
