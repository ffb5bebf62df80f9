// The entry points of ncclProfiler, with an overload for each signature that a version has. ProfilerTable
// selects them. They always return success, and accept null pointers and unknown handles, types and states:
// an error here must not reach a training job.
#pragma once

#include <unistd.h>

#include <string_view>

#include "gpu_client/engine/trace/trace_observer.h"
#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/abi/profiler_event.h"
#include "nccl_plugin/profiler/profiler.h"

namespace sluice::nccl::abi::profiler_entry {

// Before v5, events cannot be joined with sessions (profiler.h). From 2.28 on NCCL takes the profiler from
// the library of the network if the application has no other one. So the plugin is loaded without being asked
// for, and must cost nothing: an empty mask selects no event.
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
                   int rank, Logger /*logger*/) noexcept {
  if (context == nullptr || mask == nullptr || !engine::TraceObserver::is_requested())
    return init(context, mask);
  // The mask is one for all communicators, whose threads read it: it is not set to 0 in between.
  *context = nullptr;
  const Result opened = guarded("profiler init", [&] {
    *context = profiler::open({.id = comm_id,
                               .name = comm_name != nullptr ? comm_name : "",
                               .nodes = nodes,
                               .ranks = ranks,
                               .rank = rank});
    *mask = kProfileCollective | kProfileProxyOp | kProfileKernelChannel;
    return kSuccess;
  });
  return opened == kSuccess ? kSuccess : init(context, mask);
}

// NCCL passes handles as pointers. They are numbers here and never dereferenced.
inline void* to_pointer(profiler::Handle handle) noexcept {
  return reinterpret_cast<void*>(handle);  // NOLINT(performance-no-int-to-ptr)
}
inline profiler::Handle to_handle(void* pointer) noexcept {
  return reinterpret_cast<uintptr_t>(pointer);
}

inline std::string_view text_of(const char* text) noexcept {
  return text != nullptr ? text : "";
}

template <int kVersion>
profiler::Handle start(profiler::Communicator& communicator, const ProfilerEvent<kVersion>& event) noexcept {
  if (event.type == kProfileCollective) {
    const ProfilerCollective<kVersion>& c = event.collective;
    return profiler::start_collective(communicator, {.function = text_of(c.function),
                                                     .data_type = text_of(c.data_type),
                                                     .algorithm = text_of(c.algorithm),
                                                     .protocol = text_of(c.protocol),
                                                     .sequence = c.sequence,
                                                     .count = c.count,
                                                     .channels = c.channels});
  }
  if (event.type == kProfileKernelChannel)
    return profiler::start_kernel(to_handle(event.parent), event.kernel_channel.gpu_time);
  // Another process may run the network part; there the parent means nothing.
  if (event.type == kProfileProxyOp && event.proxy_op.pid == ::getpid())
    profiler::start_network(to_handle(event.parent));
  return 0;
}

// NCCL does not stop an event without a handle.
template <int kVersion>
Result start_event(void* context, void** handle, ProfilerEvent<kVersion>* event) noexcept {
  if (handle == nullptr) return kSuccess;
  *handle = nullptr;
  if constexpr (kVersion >= 5) {
    if (context != nullptr && event != nullptr)
      *handle = to_pointer(start(*static_cast<profiler::Communicator*>(context), *event));
  }
  return kSuccess;
}

inline Result stop_event(void* handle) noexcept {
  profiler::stop(to_handle(handle));
  return kSuccess;
}

// `arguments` depend on the state. For the end of a kernel they are the GPU's time.
inline Result record_event_state(void* handle, int state, void* arguments) noexcept {
  if (state == kProfilerKernelStop && arguments != nullptr)
    profiler::set_kernel_end(to_handle(handle), *static_cast<const uint64_t*>(arguments));
  return kSuccess;
}

inline Result finalize(void* context) noexcept {
  profiler::close(static_cast<profiler::Communicator*>(context));
  return kSuccess;
}

}  // namespace sluice::nccl::abi::profiler_entry
