// ncclNet_v7: NCCL 2.19 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v7, NetTable<7>);
SLUICE_CHECK_LAYOUT(net_props_v7, Properties<7>);

extern "C" {
SLUICE_EXPORTED NetTable<7> ncclNetPlugin_v7;
}

}  // namespace sluice::nccl::abi
