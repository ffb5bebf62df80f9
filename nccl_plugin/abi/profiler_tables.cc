// The tables of NCCL's profiler interface, one for each version.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v1, ProfilerTable<1>);
SLUICE_CHECK_LAYOUT(profiler_event_v1, ProfilerEvent<1>);
SLUICE_CHECK_LAYOUT(profiler_collective_v1, ProfilerCollective<1>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v1, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_v2, ProfilerTable<2>);
SLUICE_CHECK_LAYOUT(profiler_event_v2, ProfilerEvent<2>);
SLUICE_CHECK_LAYOUT(profiler_collective_v2, ProfilerCollective<2>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v2, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_v3, ProfilerTable<3>);
SLUICE_CHECK_LAYOUT(profiler_event_v3, ProfilerEvent<3>);
SLUICE_CHECK_LAYOUT(profiler_collective_v3, ProfilerCollective<3>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v3, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v3, ProfilerKernelChannel<3>);
SLUICE_CHECK_LAYOUT(profiler_v4, ProfilerTable<4>);
SLUICE_CHECK_LAYOUT(profiler_event_v4, ProfilerEvent<4>);
SLUICE_CHECK_LAYOUT(profiler_collective_v4, ProfilerCollective<4>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v4, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v4, ProfilerKernelChannel<4>);
SLUICE_CHECK_LAYOUT(profiler_v5, ProfilerTable<5>);
SLUICE_CHECK_LAYOUT(profiler_event_v5, ProfilerEvent<5>);
SLUICE_CHECK_LAYOUT(profiler_collective_v5, ProfilerCollective<5>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v5, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v5, ProfilerKernelChannel<5>);
SLUICE_CHECK_LAYOUT(profiler_v6, ProfilerTable<6>);
SLUICE_CHECK_LAYOUT(profiler_event_v6, ProfilerEvent<6>);
SLUICE_CHECK_LAYOUT(profiler_collective_v6, ProfilerCollective<6>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v6, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v6, ProfilerKernelChannel<6>);
SLUICE_CHECK_LAYOUT(profiler_v7, ProfilerTable<7>);
SLUICE_CHECK_LAYOUT(profiler_event_v7, ProfilerEvent<7>);
SLUICE_CHECK_LAYOUT(profiler_collective_v7, ProfilerCollective<7>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v7, ProfilerProxyOp);
SLUICE_CHECK_LAYOUT(profiler_kernel_channel_v7, ProfilerKernelChannel<7>);

extern "C" {
SLUICE_EXPORTED ProfilerTable<1> ncclProfiler_v1;  // NCCL 2.23
SLUICE_EXPORTED ProfilerTable<2> ncclProfiler_v2;  // NCCL 2.24 and 2.25
SLUICE_EXPORTED ProfilerTable<3> ncclProfiler_v3;  // NCCL 2.26
SLUICE_EXPORTED ProfilerTable<4> ncclProfiler_v4;  // NCCL 2.27
SLUICE_EXPORTED ProfilerTable<5> ncclProfiler_v5;  // NCCL 2.28
SLUICE_EXPORTED ProfilerTable<6> ncclProfiler_v6;  // NCCL 2.29 and 2.30
SLUICE_EXPORTED ProfilerTable<7> ncclProfiler_v7;  // NCCL 2.31 and newer
}

}  // namespace sluice::nccl::abi
