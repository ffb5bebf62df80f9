// ncclTuner_v6: NCCL 2.30 and newer. NCCL defines the order of the members.
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/tuner_entries.h"

namespace sluice::nccl::abi {

struct TunerV6 {
  const char* name;
  Result (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger log, void* nvl_domains,
                 void* constants);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** table,
                          int algorithms, int protocols, int registered, int* channels);
  Result (*finalize)(void* context);
  Result (*get_chunk_size)(void* context, int function, size_t bytes, int algorithm, int protocol,
                           int channels, size_t* chunk);
};

SLUICE_CHECK_LAYOUT(tuner_v6, TunerV6);

extern "C" SLUICE_EXPORTED TunerV6 ncclTunerPlugin_v6;
TunerV6 ncclTunerPlugin_v6 = {
    .name = tuner_entry::name(),
    .init = [](void** context, uint64_t, size_t ranks, size_t nodes, Logger log, void*,
               void*) { return tuner_entry::init(ranks, nodes, log, context); },
    .get_coll_info =
        [](void* context, int function, size_t bytes, int, float** table, int algorithms, int protocols, int,
           int*) { return tuner_entry::get_costs(context, function, bytes, table, algorithms, protocols); },
    .finalize = tuner_entry::finalize,
    .get_chunk_size = tuner_entry::chunk_size,
};

}  // namespace sluice::nccl::abi
