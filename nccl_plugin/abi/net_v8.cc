// ncclNet_v8: NCCL 2.20 and newer.
#include "nccl_plugin/abi/net_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(net_v8, NetTable<8>);
SLUICE_CHECK_LAYOUT(net_props_v8, Properties<8>);

extern "C" {
SLUICE_EXPORTED NetTable<8> ncclNetPlugin_v8;
}

}  // namespace sluice::nccl::abi
