// The entry points of ncclNet, with an overload for each signature that a version has. NetTable selects them.
#pragma once

#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/abi/properties.h"
#include "nccl_plugin/abi/results.h"
#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/host/nccl_release.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/net/net.h"
#include "nccl_plugin/tuner/verdict.h"

namespace sluice::nccl::abi {

// Reports an event of the network to the loaded profiler. Not used: it needs the handle that NCCL passes to
// isend and irecv, and reads it without a check. CollNet's calls have no such handle.
using ProfilerCallback = Result (*)(void** event, int type, void* handle, int64_t plugin, void* data);

namespace net_entry {

// NCCL reads the name before init, right after it has loaded the library.
[[nodiscard]] inline const char* name() noexcept {
  try {
    return settings().net_name.c_str();
  } catch (...) {
    return "SLUICE";
  }
}

inline Result init_process(Logger logger) noexcept {
  return guarded("init", [&] {
    set_logger(logger);
    log_settings_warnings();
    log_capabilities();
    return kSuccess;
  });
}
template <int kVersion>
Result init(Logger logger) noexcept {
  const Result result = init_process(logger);
  record_nccl(logger, kVersion);
  tuner::log_verdict_without_tuner();
  return result;
}
template <int kVersion>
Result init(Logger logger, ProfilerCallback) noexcept {
  return init<kVersion>(logger);
}
template <int kVersion>
Result init(void** context, uint64_t /*comm_id*/, void* /*config*/, Logger logger,
            ProfilerCallback) noexcept {
  *context = nullptr;  // the plugin has no state per communicator
  return init<kVersion>(logger);
}

inline Result devices(int* count) noexcept {
  return guarded("net devices", [&] {
    *count = static_cast<int>(capabilities().net.size());
    return kSuccess;
  });
}

template <int kVersion>
Result properties(int device, Properties<kVersion>* out) noexcept {
  return guarded("net getProperties", [&] {
    const auto& table = capabilities().net;
    if (device < 0 || static_cast<size_t>(device) >= table.size()) return kInvalidArgument;
    fill(*out, table[static_cast<size_t>(device)], device);
    return kSuccess;
  });
}

inline Result listen(int device, void* handle, void** comm) noexcept {
  return guarded("net listen", [&] {
    net::Listener* listener = nullptr;
    const Status s =
        net::listen(device, net::Handle(static_cast<std::byte*>(handle), kHandleBytes), &listener);
    *comm = listener;
    return log_result("net listen", s);
  });
}
inline Result listen(void* /*context*/, int device, void* handle, void** comm) noexcept {
  return listen(device, handle, comm);
}

inline Result connect(int device, void* handle, void** comm) noexcept {
  return guarded("net connect", [&] {
    net::SendComm* send = nullptr;
    const Status s = net::connect(device, net::Handle(static_cast<std::byte*>(handle), kHandleBytes), &send);
    *comm = send;
    return log_result("net connect", s);
  });
}
inline Result connect(int device, void* handle, void** comm, void** /*device_comm*/) noexcept {
  return connect(device, handle, comm);
}
inline Result connect(int device, void* /*config*/, void* handle, void** comm,
                      void** /*device_comm*/) noexcept {
  return connect(device, handle, comm);
}
inline Result connect(void* /*context*/, int device, void* handle, void** comm,
                      void** /*device_comm*/) noexcept {
  return connect(device, handle, comm);
}

inline Result accept(void* listener, void** comm) noexcept {
  return guarded("net accept", [&] {
    net::RecvComm* receive = nullptr;
    const Status s = net::accept(*static_cast<net::Listener*>(listener), &receive);
    *comm = receive;
    return log_result("net accept", s);
  });
}
inline Result accept(void* listener, void** comm, void** /*device_comm*/) noexcept {
  return accept(listener, comm);
}

// Registers nothing: TCP needs no registration, queue pairs copy, and ptrSupport offers only host memory.
template <typename Size>
Result register_memory(void* /*comm*/, void* data, Size /*size*/, int type, void** handle) noexcept {
  *handle = data;
  return type == kPointerHost ? kSuccess : kInvalidUsage;
}
inline Result register_dma_buf(void*, void*, size_t, int, uint64_t, int, void** handle) noexcept {
  *handle = nullptr;
  return kInvalidUsage;
}
inline Result deregister_memory(void*, void*) noexcept {
  return kSuccess;
}

template <typename Size>
Result send(void* comm, void* data, Size size, int tag, void* /*handle*/, void** request) noexcept {
  net::Request* r = nullptr;
  const Status s = net::isend(*static_cast<net::SendComm*>(comm), static_cast<const std::byte*>(data),
                              static_cast<size_t>(size), tag, &r);
  *request = r;
  return to_result(s);  // isend() has logged the error
}
inline Result send(void* comm, void* data, size_t size, int tag, void* handle, void* /*profile*/,
                   void** request) noexcept {
  return send(comm, data, size, tag, handle, request);
}

template <typename Size>
Result receive(void* comm, int n, void** data, Size* sizes, int* tags, void** /*handles*/,
               void** request) noexcept {
  *request = nullptr;
  if (n != 1) return kInternalError;  // maxRecvs is 1
  net::Request* r = nullptr;
  const Status s = net::irecv(*static_cast<net::RecvComm*>(comm), static_cast<std::byte*>(data[0]),
                              static_cast<size_t>(sizes[0]), tags[0], &r);
  *request = r;
  return to_result(s);  // irecv() has logged the error
}
inline Result receive(void* comm, int n, void** data, size_t* sizes, int* tags, void** handles,
                      void** /*profiles*/, void** request) noexcept {
  return receive(comm, n, data, sizes, tags, handles, request);
}

// For GPU memory only, which is not offered. A null request means done.
inline Result flush(void*, int, void**, int*, void**, void** request) noexcept {
  *request = nullptr;
  return kSuccess;
}

inline Result test(void* request, int* done, int* sizes) noexcept {
  bool is_done = false;
  size_t bytes = 0;
  const Status s = net::test(*static_cast<net::Request*>(request), &is_done, &bytes);
  *done = is_done ? 1 : 0;
  if (is_done && sizes != nullptr) *sizes = static_cast<int>(bytes);
  return to_result(s);  // test() has logged the error
}

inline Result close_send(void* comm) noexcept {
  net::close(static_cast<net::SendComm*>(comm));
  return kSuccess;
}
inline Result close_receive(void* comm) noexcept {
  net::close(static_cast<net::RecvComm*>(comm));
  return kSuccess;
}
inline Result close_listen(void* listener) noexcept {
  net::close(static_cast<net::Listener*>(listener));
  return kSuccess;
}

inline Result finalize(void* /*context*/) noexcept {
  return kSuccess;
}

}  // namespace net_entry
}  // namespace sluice::nccl::abi
