// Compares the player's declarations with the layouts that a compiler produces for NCCL's headers.
#include <sluice_abi_layouts.h>

#include "tests/nccl/player/collnet_tables.h"
#include "tests/nccl/player/net_tables.h"
#include "tests/nccl/player/tuner_tables.h"

namespace player {
namespace {

SLUICE_CHECK_LAYOUT_net_props_v5(PropsV5);
SLUICE_CHECK_LAYOUT_net_props_v6(PropsV5);
SLUICE_CHECK_LAYOUT_net_props_v7(PropsV7);
SLUICE_CHECK_LAYOUT_net_props_v8(PropsV8);
SLUICE_CHECK_LAYOUT_net_props_v9(PropsV9);
SLUICE_CHECK_LAYOUT_net_props_v10(PropsV9);
SLUICE_CHECK_LAYOUT_net_props_v11(PropsV11);
SLUICE_CHECK_LAYOUT_net_props_v12(PropsV12);

SLUICE_CHECK_LAYOUT_net_vprops_v9(VirtualDevice<4>);
SLUICE_CHECK_LAYOUT_net_vprops_v10(VirtualDevice<4>);
SLUICE_CHECK_LAYOUT_net_vprops_v11(VirtualDevice<4>);
SLUICE_CHECK_LAYOUT_net_vprops_v12(VirtualDevice<8>);
SLUICE_CHECK_LAYOUT_net_config_v10(NetConfig);
SLUICE_CHECK_LAYOUT_net_config_v11(NetConfig);
SLUICE_CHECK_LAYOUT_net_config_v12(NetConfig);
SLUICE_CHECK_LAYOUT_net_comm_attr_v11(CommAttributes);
SLUICE_CHECK_LAYOUT_net_comm_attr_v12(CommAttributes);
SLUICE_CHECK_LAYOUT_net_attr_v11(NetAttributes);
SLUICE_CHECK_LAYOUT_net_attr_v12(NetAttributes);

SLUICE_CHECK_LAYOUT_net_v5(NetTable<5>::Type);
SLUICE_CHECK_LAYOUT_net_v6(NetTable<6>::Type);
SLUICE_CHECK_LAYOUT_net_v7(NetTable<7>::Type);
SLUICE_CHECK_LAYOUT_net_v8(NetTable<8>::Type);
SLUICE_CHECK_LAYOUT_net_v9(NetTable<9>::Type);
SLUICE_CHECK_LAYOUT_net_v10(NetTable<10>::Type);
SLUICE_CHECK_LAYOUT_net_v11(NetTable<11>::Type);
SLUICE_CHECK_LAYOUT_net_v12(NetTable<12>::Type);

SLUICE_CHECK_LAYOUT_collnet_sge_v8(ScatterGather<uint32_t>);
SLUICE_CHECK_LAYOUT_collnet_sge_v9(ScatterGather<size_t>);
SLUICE_CHECK_LAYOUT_collnet_sge_v10(ScatterGather<size_t>);
SLUICE_CHECK_LAYOUT_collnet_sge_v11(ScatterGather<size_t>);
SLUICE_CHECK_LAYOUT_collnet_sge_v12(ScatterGather<size_t>);
SLUICE_CHECK_LAYOUT_collnet_v8(CollNetTable<8>::Type);
SLUICE_CHECK_LAYOUT_collnet_v9(CollNetTable<9>::Type);
SLUICE_CHECK_LAYOUT_collnet_v10(CollNetTable<10>::Type);
SLUICE_CHECK_LAYOUT_collnet_v11(CollNetTable<11>::Type);
SLUICE_CHECK_LAYOUT_collnet_v12(CollNetTable<12>::Type);

SLUICE_CHECK_LAYOUT_nvl_domain_v5(NvlDomain);
SLUICE_CHECK_LAYOUT_nvl_domain_v6(NvlDomain);
SLUICE_CHECK_LAYOUT_tuner_constants_v5(TunerConstants);
SLUICE_CHECK_LAYOUT_tuner_constants_v6(TunerConstants);
SLUICE_CHECK_LAYOUT_tuner_v2(TunerV2);
SLUICE_CHECK_LAYOUT_tuner_v3(TunerV3);
SLUICE_CHECK_LAYOUT_tuner_v4(TunerV4);
SLUICE_CHECK_LAYOUT_tuner_v5(TunerV5);
SLUICE_CHECK_LAYOUT_tuner_v6(TunerV6);

}  // namespace
}  // namespace player
