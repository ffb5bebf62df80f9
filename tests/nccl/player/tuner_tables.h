// The tables that a plugin exports for tuning, per version. layout_checks.cc compares them with
// ../abi/layouts.tsv.
#pragma once

#include "tests/nccl/player/nccl_types.h"

namespace player {

struct NvlDomain {
  int n_nvl_domains, min_ranks_per_nvl_domain, max_ranks_per_nvl_domain;
};
struct TunerConstants {
  double base_latencies[kAlgorithms][kProtocols];
  double hw_latencies[3][kAlgorithms][kProtocols];
  double ll_max_bws[4][3];
  double per_ch_max_ring_ll128_bws[4][3];
  double per_ch_max_tree_ll128_bws[4][3];
  double per_ch_max_tree_bws[4][3];
  double per_ch_max_nvls_tree_bws[4][3];
};

struct TunerV2 {
  const char* name;
  Result (*init)(size_t, size_t, Logger, void**);
  Result (*get_coll_info)(void*, Function, size_t, int, int, int, int*, int*, int*);
  Result (*destroy)(void*);
};
struct TunerV3 {
  const char* name;
  Result (*init)(size_t, size_t, Logger, void**);
  Result (*get_coll_info)(void*, Function, size_t, int, float**, int, int, int*);
  Result (*destroy)(void*);
};
struct TunerV4 {
  const char* name;
  Result (*init)(size_t, size_t, Logger, void**);
  Result (*get_coll_info)(void*, Function, size_t, int, float**, int, int, int, int*);
  Result (*destroy)(void*);
};
struct TunerV5 {
  const char* name;
  Result (*init)(void**, uint64_t, size_t, size_t, Logger, NvlDomain*, TunerConstants*);
  Result (*get_coll_info)(void*, Function, size_t, int, float**, int, int, int, int*);
  Result (*finalize)(void*);
};
struct TunerV6 {
  const char* name;
  Result (*init)(void**, uint64_t, size_t, size_t, Logger, NvlDomain*, TunerConstants*);
  Result (*get_coll_info)(void*, Function, size_t, int, float**, int, int, int, int*);
  Result (*finalize)(void*);
  Result (*get_chunk_size)(void*, Function, size_t, int, int, int, size_t*);
};

}  // namespace player
