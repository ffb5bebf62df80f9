// The table of functions that the plugin exports to NCCL for each version of ncclProfiler.
#pragma once

#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/member.h"
#include "nccl_plugin/abi/net_entries.h"
#include "nccl_plugin/abi/profiler_entries.h"

namespace sluice::nccl::abi {

// ProfilerTable<N> is ncclProfiler_vN. NCCL defines the order and the signatures of the members.
template <int kVersion>
struct ProfilerTable {
  template <typename First, typename... Later>
  using Call = Member<kVersion, First, Later...>;

  const char* name = net_entry::name();
  Call<From<1, Result(void** context, int* mask)>,
       From<4, Result(void** context, int* mask, const char* comm_name, uint64_t comm_id, int nodes,
                      int ranks, int rank, Logger log)>,
       From<5, Result(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nodes,
                      int ranks, int rank, Logger log)>>
      init = profiler_entry::init;
  Result (*start_event)(void* context, void** handle,
                        ProfilerEvent<kVersion>* event) = profiler_entry::start_event<kVersion>;
  Result (*stop_event)(void* handle) = profiler_entry::stop_event;
  Result (*record_event_state)(void* handle, int state, void* arguments) = profiler_entry::record_event_state;
  Result (*finalize)(void* context) = profiler_entry::finalize;
};

}  // namespace sluice::nccl::abi
