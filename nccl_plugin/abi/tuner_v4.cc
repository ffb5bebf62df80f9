// ncclTuner_v4: NCCL 2.24 and newer.
#include "nccl_plugin/abi/tuner_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(tuner_v4, TunerTable<4>);

extern "C" {
SLUICE_EXPORTED TunerTable<4> ncclTunerPlugin_v4;
}

}  // namespace sluice::nccl::abi
