// ncclTuner_v2: NCCL 2.21 and newer.
#include "nccl_plugin/abi/tuner_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(tuner_v2, TunerTable<2>);

extern "C" {
SLUICE_EXPORTED TunerTable<2> ncclTunerPlugin_v2;
}

}  // namespace sluice::nccl::abi
