// The entry points that ncclCollNet does not share with ncclNet, with an overload for each signature that a
// version has. CollNetTable selects them.
#pragma once

#include "gpu_client/engine/trace/trace_observer.h"
#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/abi/net_entries.h"
#include "nccl_plugin/abi/results.h"
#include "nccl_plugin/collnet/collnet.h"
#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/host/nccl_release.h"

namespace sluice::nccl::abi::collnet_entry {

inline Result init(Logger logger) noexcept {
  return net_entry::init_process(logger);
}
// In 2.28.3, ncclNetFinalize() calls the CollNet of a communicator that has a context, also where NCCL chose
// another network and the communicator has no CollNet: it crashes. 2.28.7 asks whether the plugin is in use.
inline constexpr int kFirstReleaseWithContext = 22807;

// The context is the id itself, for the profiler only: the heads of a communicator share it.
inline Result init(void** context, uint64_t comm_id, Logger logger) noexcept {
  const bool is_used = nccl_release() >= kFirstReleaseWithContext && engine::TraceObserver::is_requested();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced
  *context = is_used ? reinterpret_cast<void*>(comm_id) : nullptr;
  return init(logger);
}

inline Result devices(int* count) noexcept {
  return guarded("collnet devices", [&] {
    *count = static_cast<int>(capabilities().collnet.size());
    return kSuccess;
  });
}

inline Result listen(void* context, int device, void* handle, void** comm) noexcept {
  collnet::Listener* listener = nullptr;
  const Status s = collnet::listen(device, collnet::Handle(static_cast<std::byte*>(handle), kHandleBytes),
                                   reinterpret_cast<uintptr_t>(context), &listener);
  *comm = listener;
  return log_result("collnet listen", s);
}
inline Result listen(int device, void* handle, void** comm) noexcept {
  return listen(nullptr, device, handle, comm);
}

inline Result connect(void* handles[], int ranks, int /*rank*/, void* listener, void** comm) noexcept {
  *comm = nullptr;
  if (ranks < 1) return kInvalidArgument;
  collnet::Comm* created = nullptr;
  const Status s = collnet::connect(std::span<void* const>(handles, static_cast<size_t>(ranks)),
                                    *static_cast<collnet::Listener*>(listener), &created);
  *comm = created;
  return s.ok() ? kSuccess : kSystemError;  // connect() has logged the reason
}

inline Result reduce_support(int data_type, int op, int* supported) noexcept {
  *supported = collnet::supports(data_type, op) ? 1 : 0;
  return kSuccess;
}

inline Result register_memory(void* comm, void* data, size_t size, int type, void** handle) noexcept {
  if (type != kPointerHost) return kInvalidUsage;  // not in ptr_support, so NCCL does not call this
  return log_result("collnet regMr",
                    collnet::register_memory(*static_cast<collnet::Comm*>(comm), data, size, handle));
}
inline Result deregister_memory(void* comm, void* handle) noexcept {
  collnet::deregister_memory(*static_cast<collnet::Comm*>(comm), handle);
  return kSuccess;
}

template <typename Count>
Result allreduce(void* comm, void* send, void* receive, Count count, int data_type, int op,
                 void* /*send_handle*/, void* /*receive_handle*/, void** request) noexcept {
  collnet::Request* r = nullptr;
  const Status s = collnet::iallreduce(*static_cast<collnet::Comm*>(comm), send, receive,
                                       static_cast<size_t>(count), data_type, op, &r);
  *request = r;
  return to_result(s);
}

inline Result flush(void*, void*, int, void*, void** request) noexcept {
  *request = nullptr;  // for GPU memory only
  return kSuccess;
}

inline Result test(void* request, int* done, int* size) noexcept {
  bool is_done = false;
  size_t bytes = 0;
  const Status s = collnet::test(*static_cast<collnet::Request*>(request), &is_done, &bytes);
  *done = is_done && s.ok() ? 1 : 0;
  if (is_done && size != nullptr) *size = static_cast<int>(bytes);
  return to_result(s);
}

inline Result close_comm(void* comm) noexcept {
  collnet::close(static_cast<collnet::Comm*>(comm));
  return kSuccess;
}
inline Result close_listen(void* listener) noexcept {
  collnet::close(static_cast<collnet::Listener*>(listener));
  return kSuccess;
}

}  // namespace sluice::nccl::abi::collnet_entry
