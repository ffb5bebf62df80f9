// ncclNet_v12: NCCL 2.30 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v12, NetTable<12>);
SLUICE_CHECK_LAYOUT(net_props_v12, Properties<12>);

extern "C" {
SLUICE_EXPORTED NetTable<12> ncclNetPlugin_v12;
}

}  // namespace sluice::nccl::abi
