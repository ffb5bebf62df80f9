// The table of functions that the plugin exports to NCCL for each version of ncclTuner.
#pragma once

#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/member.h"
#include "nccl_plugin/abi/net_entries.h"
#include "nccl_plugin/abi/tuner_entries.h"

namespace sluice::nccl::abi {

// TunerTable<N> is ncclTuner_vN. NCCL defines the order and the signatures of the members.
template <int kVersion>
struct TunerTable {
  template <typename First, typename... Later>
  using Call = Member<kVersion, First, Later...>;

  const char* name = net_entry::name();
  Call<From<2, Result(size_t ranks, size_t nodes, Logger log, void** context)>,
       From<5, Result(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger log,
                      void* nvl_domains, void* constants)>>
      init = tuner_entry::init;
  Call<From<2, Result(void* context, int function, size_t bytes, int collnet_support, int nvls_support,
                      int pipelined, int* algorithm, int* protocol, int* channels)>,
       From<3, Result(void* context, int function, size_t bytes, int pipelined, float** table, int algorithms,
                      int protocols, int* channels)>,
       From<4, Result(void* context, int function, size_t bytes, int pipelined, float** table, int algorithms,
                      int protocols, int registered, int* channels)>>
      get_coll_info = tuner_entry::get_coll_info;
  union {
    Result (*finalize)(void* context) = tuner_entry::finalize;
    Result (*destroy)(void* context);  // its name before v5
  };
  [[no_unique_address]] Call<From<6, Result(void* context, int function, size_t bytes, int algorithm,
                                            int protocol, int channels, size_t* chunk)>>
      get_chunk_size = tuner_entry::chunk_size;
};

}  // namespace sluice::nccl::abi
