// ncclTuner_v5: NCCL 2.28 and newer. NCCL defines the order of the members.
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/tuner_entries.h"

namespace sluice::nccl::abi {

struct TunerV5 {
  const char* name;
  Result (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger log, void* nvl_domains,
                 void* constants);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** table,
                          int algorithms, int protocols, int registered, int* channels);
  Result (*finalize)(void* context);
};

SLUICE_CHECK_LAYOUT(tuner_v5, TunerV5);

extern "C" SLUICE_EXPORTED TunerV5 ncclTunerPlugin_v5;
TunerV5 ncclTunerPlugin_v5 = {
    .name = tuner_entry::name(),
    .init = [](void** context, uint64_t, size_t ranks, size_t nodes, Logger log, void*,
               void*) { return tuner_entry::init(ranks, nodes, log, context); },
    .get_coll_info =
        [](void* context, int function, size_t bytes, int, float** table, int algorithms, int protocols, int,
           int*) { return tuner_entry::get_costs(context, function, bytes, table, algorithms, protocols); },
    .finalize = tuner_entry::finalize,
};

}  // namespace sluice::nccl::abi
