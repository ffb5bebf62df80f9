// ncclProfiler_v6: NCCL 2.29 and 2.30.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v6, ProfilerTable<6>);
SLUICE_CHECK_LAYOUT(profiler_event_v6, ProfilerEvent<6>);
SLUICE_CHECK_LAYOUT(profiler_collective_v6, ProfilerCollective<6>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v6, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v6, ProfilerKernelChannel<6>);

extern "C" {
SLUICE_EXPORTED ProfilerTable<6> ncclProfiler_v6;
}

}  // namespace sluice::nccl::abi
