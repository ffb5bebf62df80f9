// ncclCollNet_v10: NCCL 2.26 and newer.
#include "nccl_plugin/abi/collnet_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(collnet_v10, CollNetTable<10>);

extern "C" {
SLUICE_EXPORTED CollNetTable<10> ncclCollNetPlugin_v10;
}

}  // namespace sluice::nccl::abi
