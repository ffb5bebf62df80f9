// The tables that a plugin exports for tuning, per version. layout_checks.cc compares them with
// ../abi/layouts.tsv.
#pragma once

#include "tests/nccl/player/nccl_types.h"

namespace player {

struct NvlDomain {
  int n_nvl_domains, min_ranks_per_nvl_domain, max_ranks_per_nvl_domain;
};
// From v7 on, the constants have a fifth generation of GPUs.
template <int kAbi>
struct TunerConstants {
  static constexpr int kGenerations = kAbi >= 7 ? 5 : 4;
  double base_latencies[kAlgorithms][kProtocols];
  double hw_latencies[3][kAlgorithms][kProtocols];
  double ll_max_bws[kGenerations][3];
  double per_ch_max_ring_ll128_bws[kGenerations][3];
  double per_ch_max_tree_ll128_bws[kGenerations][3];
  double per_ch_max_tree_bws[kGenerations][3];
  double per_ch_max_nvls_tree_bws[kGenerations][3];
};

template <int kAbi>
struct TunerTable {
  template <typename First, typename... Later>
  using Call = Member<kAbi, First, Later...>;

  const char* name;
  Call<From<2, Result(size_t, size_t, Logger, void**)>,
       From<5, Result(void**, uint64_t, size_t, size_t, Logger, NvlDomain*, TunerConstants<kAbi>*)>>
      init;
  Call<From<2, Result(void*, Function, size_t, int, int, int, int*, int*, int*)>,
       From<3, Result(void*, Function, size_t, int, float**, int, int, int*)>,
       From<4, Result(void*, Function, size_t, int, float**, int, int, int, int*)>>
      get_coll_info;
  union {
    Result (*finalize)(void*);
    Result (*destroy)(void*);  // its name before v5
  };
  [[no_unique_address]] Call<From<6, Result(void*, Function, size_t, int, int, int, size_t*)>> get_chunk_size;
};

}  // namespace player
