// ncclNet_v10: NCCL 2.26 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v10, NetTable<10>);
SLUICE_CHECK_LAYOUT(net_props_v10, Properties<10>);

extern "C" {
SLUICE_EXPORTED NetTable<10> ncclNetPlugin_v10;
}

}  // namespace sluice::nccl::abi
