// The tables of NCCL's tuner interface, one for each version.
#include "nccl_plugin/abi/tuner_table.h"

namespace sluice::nccl::abi {

SLUICE_CHECK_LAYOUT(tuner_v2, TunerTable<2>);
SLUICE_CHECK_LAYOUT(tuner_v3, TunerTable<3>);
SLUICE_CHECK_LAYOUT(tuner_v4, TunerTable<4>);
SLUICE_CHECK_LAYOUT(tuner_v5, TunerTable<5>);
SLUICE_CHECK_LAYOUT(tuner_v6, TunerTable<6>);
SLUICE_CHECK_LAYOUT(tuner_v7, TunerTable<7>);

extern "C" {
SLUICE_EXPORTED TunerTable<2> ncclTunerPlugin_v2;  // NCCL 2.21 and newer
SLUICE_EXPORTED TunerTable<3> ncclTunerPlugin_v3;  // NCCL 2.22 and newer
SLUICE_EXPORTED TunerTable<4> ncclTunerPlugin_v4;  // NCCL 2.24 and newer
SLUICE_EXPORTED TunerTable<5> ncclTunerPlugin_v5;  // NCCL 2.28 and newer
SLUICE_EXPORTED TunerTable<6> ncclTunerPlugin_v6;  // NCCL 2.30 and newer
SLUICE_EXPORTED TunerTable<7> ncclTunerPlugin_v7;  // NCCL newer than 2.32.3
}

}  // namespace sluice::nccl::abi
