// ncclCollNet_v11: NCCL 2.28 and newer.
#include "nccl_plugin/abi/collnet_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(collnet_v11, CollNetTable<11>);

extern "C" {
SLUICE_EXPORTED CollNetTable<11> ncclCollNetPlugin_v11;
}

}  // namespace sluice::nccl::abi
