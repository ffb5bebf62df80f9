// ncclTuner_v4: NCCL 2.24 and newer. NCCL defines the order of the members.
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/tuner_entries.h"

namespace sluice::nccl::abi {

struct TunerV4 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** table,
                          int algorithms, int protocols, int registered, int* channels);
  Result (*destroy)(void* context);
};

SLUICE_CHECK_LAYOUT(tuner_v4, TunerV4);

extern "C" SLUICE_EXPORTED TunerV4 ncclTunerPlugin_v4;
TunerV4 ncclTunerPlugin_v4 = {
    .name = tuner_entry::name(),
    .init = [](size_t ranks, size_t nodes, Logger log,
               void** context) { return tuner_entry::init(ranks, nodes, log, context); },
    .get_coll_info =
        [](void* context, int function, size_t bytes, int, float** table, int algorithms, int protocols, int,
           int*) { return tuner_entry::get_costs(context, function, bytes, table, algorithms, protocols); },
    .destroy = tuner_entry::finalize,
};

}  // namespace sluice::nccl::abi
