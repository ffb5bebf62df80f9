// ncclProfiler_v5: NCCL 2.28.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v5, ProfilerTable<5>);
SLUICE_CHECK_LAYOUT(profiler_event_v5, ProfilerEvent<5>);
SLUICE_CHECK_LAYOUT(profiler_collective_v5, ProfilerCollective<5>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v5, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v5, ProfilerKernelChannel<5>);

extern "C" {
SLUICE_EXPORTED ProfilerTable<5> ncclProfiler_v5;
}

}  // namespace sluice::nccl::abi
