// ncclCollNet_v8: NCCL 2.20 and newer.
#include "nccl_plugin/abi/collnet_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(collnet_v8, CollNetTable<8>);

extern "C" {
SLUICE_EXPORTED CollNetTable<8> ncclCollNetPlugin_v8;
}

}  // namespace sluice::nccl::abi
