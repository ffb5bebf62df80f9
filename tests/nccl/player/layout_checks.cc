// Compares the player's declarations with the layouts that a compiler produces for NCCL's headers.
#include <sluice_abi_layouts.h>

#include "tests/nccl/player/collnet_tables.h"
#include "tests/nccl/player/net_tables.h"
#include "tests/nccl/player/profiler_tables.h"
#include "tests/nccl/player/tuner_tables.h"

namespace player {
namespace {

SLUICE_CHECK_LAYOUT_net_props_v5(Props<5>);
SLUICE_CHECK_LAYOUT_net_props_v6(Props<6>);
SLUICE_CHECK_LAYOUT_net_props_v7(Props<7>);
SLUICE_CHECK_LAYOUT_net_props_v8(Props<8>);
SLUICE_CHECK_LAYOUT_net_props_v9(Props<9>);
SLUICE_CHECK_LAYOUT_net_props_v10(Props<10>);
SLUICE_CHECK_LAYOUT_net_props_v11(Props<11>);
SLUICE_CHECK_LAYOUT_net_props_v12(Props<12>);

SLUICE_CHECK_LAYOUT_net_vprops_v9(Props<9>::Virtual);
SLUICE_CHECK_LAYOUT_net_vprops_v10(Props<10>::Virtual);
SLUICE_CHECK_LAYOUT_net_vprops_v11(Props<11>::Virtual);
SLUICE_CHECK_LAYOUT_net_vprops_v12(Props<12>::Virtual);
SLUICE_CHECK_LAYOUT_net_config_v10(NetConfig);
SLUICE_CHECK_LAYOUT_net_config_v11(NetConfig);
SLUICE_CHECK_LAYOUT_net_config_v12(NetConfig);
SLUICE_CHECK_LAYOUT_net_comm_attr_v11(CommAttributes);
SLUICE_CHECK_LAYOUT_net_comm_attr_v12(CommAttributes);
SLUICE_CHECK_LAYOUT_net_attr_v11(NetAttributes);
SLUICE_CHECK_LAYOUT_net_attr_v12(NetAttributes);

SLUICE_CHECK_LAYOUT_net_v5(NetTable<5>);
SLUICE_CHECK_LAYOUT_net_v6(NetTable<6>);
SLUICE_CHECK_LAYOUT_net_v7(NetTable<7>);
SLUICE_CHECK_LAYOUT_net_v8(NetTable<8>);
SLUICE_CHECK_LAYOUT_net_v9(NetTable<9>);
SLUICE_CHECK_LAYOUT_net_v10(NetTable<10>);
SLUICE_CHECK_LAYOUT_net_v11(NetTable<11>);
SLUICE_CHECK_LAYOUT_net_v12(NetTable<12>);

SLUICE_CHECK_LAYOUT_collnet_sge_v8(ScatterGather<8>);
SLUICE_CHECK_LAYOUT_collnet_sge_v9(ScatterGather<9>);
SLUICE_CHECK_LAYOUT_collnet_sge_v10(ScatterGather<10>);
SLUICE_CHECK_LAYOUT_collnet_sge_v11(ScatterGather<11>);
SLUICE_CHECK_LAYOUT_collnet_sge_v12(ScatterGather<12>);
SLUICE_CHECK_LAYOUT_collnet_v8(CollNetTable<8>);
SLUICE_CHECK_LAYOUT_collnet_v9(CollNetTable<9>);
SLUICE_CHECK_LAYOUT_collnet_v10(CollNetTable<10>);
SLUICE_CHECK_LAYOUT_collnet_v11(CollNetTable<11>);
SLUICE_CHECK_LAYOUT_collnet_v12(CollNetTable<12>);

SLUICE_CHECK_LAYOUT_nvl_domain_v5(NvlDomain);
SLUICE_CHECK_LAYOUT_nvl_domain_v6(NvlDomain);
SLUICE_CHECK_LAYOUT_nvl_domain_v7(NvlDomain);
SLUICE_CHECK_LAYOUT_tuner_constants_v5(TunerConstants<5>);
SLUICE_CHECK_LAYOUT_tuner_constants_v6(TunerConstants<6>);
SLUICE_CHECK_LAYOUT_tuner_constants_v7(TunerConstants<7>);
SLUICE_CHECK_LAYOUT_tuner_v2(TunerTable<2>);
SLUICE_CHECK_LAYOUT_tuner_v3(TunerTable<3>);
SLUICE_CHECK_LAYOUT_tuner_v4(TunerTable<4>);
SLUICE_CHECK_LAYOUT_tuner_v5(TunerTable<5>);
SLUICE_CHECK_LAYOUT_tuner_v6(TunerTable<6>);
SLUICE_CHECK_LAYOUT_tuner_v7(TunerTable<7>);

SLUICE_CHECK_LAYOUT_profiler_v1(ProfilerTable<1>);
SLUICE_CHECK_LAYOUT_profiler_event_v1(ProfilerEvent<1>);
SLUICE_CHECK_LAYOUT_profiler_collective_v1(ProfilerCollective<1>);
SLUICE_CHECK_LAYOUT_profiler_proxy_op_v1(ProfilerProxyOp);
SLUICE_CHECK_LAYOUT_profiler_v2(ProfilerTable<2>);
SLUICE_CHECK_LAYOUT_profiler_event_v2(ProfilerEvent<2>);
SLUICE_CHECK_LAYOUT_profiler_collective_v2(ProfilerCollective<2>);
SLUICE_CHECK_LAYOUT_profiler_proxy_op_v2(ProfilerProxyOp);
SLUICE_CHECK_LAYOUT_profiler_v3(ProfilerTable<3>);
SLUICE_CHECK_LAYOUT_profiler_event_v3(ProfilerEvent<3>);
SLUICE_CHECK_LAYOUT_profiler_collective_v3(ProfilerCollective<3>);
SLUICE_CHECK_LAYOUT_profiler_proxy_op_v3(ProfilerProxyOp);
SLUICE_CHECK_LAYOUT_profiler_kernel_channel_v3(ProfilerKernelChannel<3>);
SLUICE_CHECK_LAYOUT_profiler_v4(ProfilerTable<4>);
SLUICE_CHECK_LAYOUT_profiler_event_v4(ProfilerEvent<4>);
SLUICE_CHECK_LAYOUT_profiler_collective_v4(ProfilerCollective<4>);
SLUICE_CHECK_LAYOUT_profiler_proxy_op_v4(ProfilerProxyOp);
SLUICE_CHECK_LAYOUT_profiler_kernel_channel_v4(ProfilerKernelChannel<4>);
SLUICE_CHECK_LAYOUT_profiler_v5(ProfilerTable<5>);
SLUICE_CHECK_LAYOUT_profiler_event_v5(ProfilerEvent<5>);
SLUICE_CHECK_LAYOUT_profiler_collective_v5(ProfilerCollective<5>);
SLUICE_CHECK_LAYOUT_profiler_proxy_op_v5(ProfilerProxyOp);
SLUICE_CHECK_LAYOUT_profiler_kernel_channel_v5(ProfilerKernelChannel<5>);
SLUICE_CHECK_LAYOUT_profiler_v6(ProfilerTable<6>);
SLUICE_CHECK_LAYOUT_profiler_event_v6(ProfilerEvent<6>);
SLUICE_CHECK_LAYOUT_profiler_collective_v6(ProfilerCollective<6>);
SLUICE_CHECK_LAYOUT_profiler_proxy_op_v6(ProfilerProxyOp);
SLUICE_CHECK_LAYOUT_profiler_kernel_channel_v6(ProfilerKernelChannel<6>);
SLUICE_CHECK_LAYOUT_profiler_v7(ProfilerTable<7>);
SLUICE_CHECK_LAYOUT_profiler_event_v7(ProfilerEvent<7>);
SLUICE_CHECK_LAYOUT_profiler_collective_v7(ProfilerCollective<7>);
SLUICE_CHECK_LAYOUT_profiler_proxy_op_v7(ProfilerProxyOp);
SLUICE_CHECK_LAYOUT_profiler_kernel_channel_v7(ProfilerKernelChannel<7>);

}  // namespace
}  // namespace player
