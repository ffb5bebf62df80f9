// ncclCollNet_v9: NCCL 2.24 and newer.
#include "nccl_plugin/abi/collnet_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(collnet_v9, CollNetTable<9>);

extern "C" {
SLUICE_EXPORTED CollNetTable<9> ncclCollNetPlugin_v9;
}

}  // namespace sluice::nccl::abi
