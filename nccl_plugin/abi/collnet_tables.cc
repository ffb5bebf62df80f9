// The tables of NCCL's CollNet interface, one for each version.
#include "nccl_plugin/abi/collnet_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(collnet_v8, CollNetTable<8>);
SLUICE_CHECK_LAYOUT(collnet_v9, CollNetTable<9>);
SLUICE_CHECK_LAYOUT(collnet_v10, CollNetTable<10>);
SLUICE_CHECK_LAYOUT(collnet_v11, CollNetTable<11>);
SLUICE_CHECK_LAYOUT(collnet_v12, CollNetTable<12>);

extern "C" {
SLUICE_EXPORTED CollNetTable<8> ncclCollNetPlugin_v8;    // NCCL 2.20 and newer
SLUICE_EXPORTED CollNetTable<9> ncclCollNetPlugin_v9;    // NCCL 2.24 and newer
SLUICE_EXPORTED CollNetTable<10> ncclCollNetPlugin_v10;  // NCCL 2.26 and newer
SLUICE_EXPORTED CollNetTable<11> ncclCollNetPlugin_v11;  // NCCL 2.28 and newer
SLUICE_EXPORTED CollNetTable<12> ncclCollNetPlugin_v12;  // NCCL 2.30 and newer
}

}  // namespace sluice::nccl::abi
