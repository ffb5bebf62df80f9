// ncclProfiler_v3: NCCL 2.26.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v3, ProfilerTable<3>);
SLUICE_CHECK_LAYOUT(profiler_event_v3, ProfilerEvent<3>);
SLUICE_CHECK_LAYOUT(profiler_collective_v3, ProfilerCollective<3>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v3, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v3, ProfilerKernelChannel<3>);

extern "C" {
SLUICE_EXPORTED ProfilerTable<3> ncclProfiler_v3;
}

}  // namespace sluice::nccl::abi
