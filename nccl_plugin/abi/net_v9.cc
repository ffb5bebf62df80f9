// ncclNet_v9: NCCL 2.24 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v9, NetTable<9>);
SLUICE_CHECK_LAYOUT(net_props_v9, Properties<9>);

extern "C" {
SLUICE_EXPORTED NetTable<9> ncclNetPlugin_v9;
}

}  // namespace sluice::nccl::abi
