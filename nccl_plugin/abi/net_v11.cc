// ncclNet_v11: NCCL 2.28 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v11, NetTable<11>);
SLUICE_CHECK_LAYOUT(net_props_v11, Properties<11>);

extern "C" {
SLUICE_EXPORTED NetTable<11> ncclNetPlugin_v11;
}

}  // namespace sluice::nccl::abi
