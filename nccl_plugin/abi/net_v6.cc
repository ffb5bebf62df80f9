// ncclNet_v6: NCCL 2.13 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v6, NetTable<6>);
SLUICE_CHECK_LAYOUT(net_props_v6, Properties<6>);

extern "C" {
SLUICE_EXPORTED NetTable<6> ncclNetPlugin_v6;
}

}  // namespace sluice::nccl::abi
