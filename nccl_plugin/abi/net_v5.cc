// ncclNet_v5: NCCL 2.12 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v5, NetTable<5>);
SLUICE_CHECK_LAYOUT(net_props_v5, Properties<5>);

extern "C" {
SLUICE_EXPORTED NetTable<5> ncclNetPlugin_v5;
}

}  // namespace sluice::nccl::abi
