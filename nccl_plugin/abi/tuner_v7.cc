// ncclTuner_v7: NCCL newer than 2.32.3.
#include "nccl_plugin/abi/tuner_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(tuner_v7, TunerTable<7>);

extern "C" {
SLUICE_EXPORTED TunerTable<7> ncclTunerPlugin_v7;
}

}  // namespace sluice::nccl::abi
