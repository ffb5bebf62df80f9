// ncclProfiler_v1: NCCL 2.23.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v1, ProfilerTable<1>);
SLUICE_CHECK_LAYOUT(profiler_event_v1, ProfilerEvent<1>);
SLUICE_CHECK_LAYOUT(profiler_collective_v1, ProfilerCollective<1>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v1, ProfilerProxyOp);

extern "C" {
SLUICE_EXPORTED ProfilerTable<1> ncclProfiler_v1;
}

}  // namespace sluice::nccl::abi
