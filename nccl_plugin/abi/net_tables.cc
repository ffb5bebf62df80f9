// The tables of NCCL's net interface, one for each version.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v5, NetTable<5>);
SLUICE_CHECK_LAYOUT(net_props_v5, Properties<5>);
SLUICE_CHECK_LAYOUT(net_v6, NetTable<6>);
SLUICE_CHECK_LAYOUT(net_props_v6, Properties<6>);
SLUICE_CHECK_LAYOUT(net_v7, NetTable<7>);
SLUICE_CHECK_LAYOUT(net_props_v7, Properties<7>);
SLUICE_CHECK_LAYOUT(net_v8, NetTable<8>);
SLUICE_CHECK_LAYOUT(net_props_v8, Properties<8>);
SLUICE_CHECK_LAYOUT(net_v9, NetTable<9>);
SLUICE_CHECK_LAYOUT(net_props_v9, Properties<9>);
SLUICE_CHECK_LAYOUT(net_v10, NetTable<10>);
SLUICE_CHECK_LAYOUT(net_props_v10, Properties<10>);
SLUICE_CHECK_LAYOUT(net_v11, NetTable<11>);
SLUICE_CHECK_LAYOUT(net_props_v11, Properties<11>);
SLUICE_CHECK_LAYOUT(net_v12, NetTable<12>);
SLUICE_CHECK_LAYOUT(net_props_v12, Properties<12>);

extern "C" {
SLUICE_EXPORTED NetTable<5> ncclNetPlugin_v5;    // NCCL 2.12 and newer
SLUICE_EXPORTED NetTable<6> ncclNetPlugin_v6;    // NCCL 2.13 and newer
SLUICE_EXPORTED NetTable<7> ncclNetPlugin_v7;    // NCCL 2.19 and newer
SLUICE_EXPORTED NetTable<8> ncclNetPlugin_v8;    // NCCL 2.20 and newer
SLUICE_EXPORTED NetTable<9> ncclNetPlugin_v9;    // NCCL 2.24 and newer
SLUICE_EXPORTED NetTable<10> ncclNetPlugin_v10;  // NCCL 2.26 and newer
SLUICE_EXPORTED NetTable<11> ncclNetPlugin_v11;  // NCCL 2.28 and newer
SLUICE_EXPORTED NetTable<12> ncclNetPlugin_v12;  // NCCL 2.30 and newer
}

}  // namespace sluice::nccl::abi
