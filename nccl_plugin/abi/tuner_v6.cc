// ncclTuner_v6: NCCL 2.30 and newer.
#include "nccl_plugin/abi/tuner_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(tuner_v6, TunerTable<6>);

extern "C" {
SLUICE_EXPORTED TunerTable<6> ncclTunerPlugin_v6;
}

}  // namespace sluice::nccl::abi
