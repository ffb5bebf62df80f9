// What the versions of ncclNet share: one function for each signature that more than one version has. The
// files net_vN.cc pick.
#pragma once

#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/abi/properties.h"
#include "nccl_plugin/abi/results.h"
#include "nccl_plugin/host/offer.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/net/net.h"

namespace sluice::nccl::abi::net_entry {

// The name is read before init, right after the library is loaded.
[[nodiscard]] inline const char* name() noexcept {
  try {
    return settings().net_name.c_str();
  } catch (...) {
    return "SLUICE";
  }
}

inline Result begin(Logger logger) noexcept {
  return guarded("net init", [&] {
    set_logger(logger);
    tell_settings_warnings();
    tell_offer();
    return kSuccess;
  });
}

inline Result devices(int* count) noexcept {
  return guarded("net devices", [&] {
    *count = static_cast<int>(offer().net.size());
    return kSuccess;
  });
}

template <typename Properties>
Result properties(int device, Properties* out) noexcept {
  return guarded("net getProperties", [&] {
    const auto& table = offer().net;
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
    return result_of("net listen", s);
  });
}

inline Result connect(int device, void* handle, void** comm) noexcept {
  return guarded("net connect", [&] {
    net::SendComm* send = nullptr;
    const Status s = net::connect(device, net::Handle(static_cast<std::byte*>(handle), kHandleBytes), &send);
    *comm = send;
    return result_of("net connect", s);
  });
}

inline Result accept(void* listener, void** comm) noexcept {
  return guarded("net accept", [&] {
    net::RecvComm* receive = nullptr;
    const Status s = net::accept(*static_cast<net::Listener*>(listener), &receive);
    *comm = receive;
    return result_of("net accept", s);
  });
}

// Host memory needs no registration for TCP; nothing else is offered in ptrSupport.
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
  return result_of("net isend", s);
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
  return result_of("net irecv", s);
}

// Only for GPU memory, which is not offered; null means done.
inline Result flush(void*, int, void**, int*, void**, void** request) noexcept {
  *request = nullptr;
  return kSuccess;
}

inline Result test(void* request, int* done, int* sizes) noexcept {
  bool over = false;
  size_t bytes = 0;
  const Status s = net::test(*static_cast<net::Request*>(request), &over, &bytes);
  *done = over ? 1 : 0;
  if (over && sizes != nullptr) *sizes = static_cast<int>(bytes);
  return result_of("net test", s);
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

}  // namespace sluice::nccl::abi::net_entry
