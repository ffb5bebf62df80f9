// ncclTuner_v5: NCCL 2.28 and newer.
#include "nccl_plugin/abi/tuner_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(tuner_v5, TunerTable<5>);

extern "C" {
SLUICE_EXPORTED TunerTable<5> ncclTunerPlugin_v5;
}

}  // namespace sluice::nccl::abi
