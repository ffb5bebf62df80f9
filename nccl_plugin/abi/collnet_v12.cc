// ncclCollNet_v12: NCCL 2.30 and newer.
#include "nccl_plugin/abi/collnet_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(collnet_v12, CollNetTable<12>);

extern "C" {
SLUICE_EXPORTED CollNetTable<12> ncclCollNetPlugin_v12;
}

}  // namespace sluice::nccl::abi
