// ncclTuner_v2: NCCL 2.21 and newer. NCCL defines the order of the members.
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/tuner_entries.h"

namespace sluice::nccl::abi {

struct TunerV2 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int collnet_support, int nvls_support,
                          int pipelined, int* algorithm, int* protocol, int* channels);
  Result (*destroy)(void* context);
};

SLUICE_CHECK_LAYOUT(tuner_v2, TunerV2);

extern "C" SLUICE_EXPORTED TunerV2 ncclTunerPlugin_v2;
TunerV2 ncclTunerPlugin_v2 = {
    .name = tuner_entry::name(),
    .init = [](size_t ranks, size_t nodes, Logger log,
               void** context) { return tuner_entry::init(ranks, nodes, log, context); },
    .get_coll_info =
        [](void* context, int function, size_t bytes, int collnet_support, int, int, int* algorithm,
           int* protocol, int*) {
          return tuner_entry::choose(context, function, bytes, collnet_support != 0, algorithm, protocol);
        },
    .destroy = tuner_entry::finalize,
};

}  // namespace sluice::nccl::abi
