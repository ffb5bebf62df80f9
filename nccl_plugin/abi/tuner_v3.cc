// ncclTuner_v3: NCCL 2.22 and newer.
#include "nccl_plugin/abi/tuner_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(tuner_v3, TunerTable<3>);

extern "C" {
SLUICE_EXPORTED TunerTable<3> ncclTunerPlugin_v3;
}

}  // namespace sluice::nccl::abi
