// ncclProfiler_v2: NCCL 2.24 and 2.25.
#include "nccl_plugin/abi/profiler_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(profiler_v2, ProfilerTable<2>);
SLUICE_CHECK_LAYOUT(profiler_event_v2, ProfilerEvent<2>);
SLUICE_CHECK_LAYOUT(profiler_collective_v2, ProfilerCollective<2>);
SLUICE_CHECK_LAYOUT(profiler_proxy_op_v2, ProfilerProxyOp);

extern "C" {
SLUICE_EXPORTED ProfilerTable<2> ncclProfiler_v2;
}

}  // namespace sluice::nccl::abi
