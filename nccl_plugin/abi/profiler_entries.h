// The entry points of ncclProfiler, with an overload for each signature that a version has. ProfilerTable
// selects them. They always return success, and accept null pointers and unknown handles, types and states:
// an error here must not reach a training job.
#pragma once

#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/abi/profiler_event.h"

namespace sluice::nccl::abi::profiler_entry {

// From 2.28 on NCCL takes the profiler from the library of the network if the application has no other one.
// So the plugin is loaded without being asked for, and must cost nothing: an empty mask selects no event.
inline Result init(void** context, int* mask) noexcept {
  if (context != nullptr) *context = nullptr;
  if (mask != nullptr) *mask = 0;
  return kSuccess;
}
inline Result init(void** context, int* mask, const char* /*comm_name*/, uint64_t /*comm_id*/, int /*nodes*/,
                   int /*ranks*/, int /*rank*/, Logger /*logger*/) noexcept {
  return init(context, mask);
}
inline Result init(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks,
                   int rank, Logger logger) noexcept {
  return init(context, mask, comm_name, comm_id, nodes, ranks, rank, logger);
}

// NCCL does not stop an event without a handle.
template <int kVersion>
Result start_event(void* /*context*/, void** handle, ProfilerEvent<kVersion>* /*event*/) noexcept {
  if (handle != nullptr) *handle = nullptr;
  return kSuccess;
}

inline Result stop_event(void* /*handle*/) noexcept {
  return kSuccess;
}

inline Result record_event_state(void* /*handle*/, int /*state*/, void* /*arguments*/) noexcept {
  return kSuccess;
}

inline Result finalize(void* /*context*/) noexcept {
  return kSuccess;
}

}  // namespace sluice::nccl::abi::profiler_entry
