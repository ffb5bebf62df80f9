#include "nccl_plugin/collnet/collnet.h"

#include <sys/random.h>

#include <exception>

#include "nccl_plugin/collnet/comm.h"
#include "nccl_plugin/collnet/joining.h"
#include "nccl_plugin/collnet/listener.h"
#include "nccl_plugin/collnet/types.h"
#include "nccl_plugin/host/ledger.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/offer.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl::collnet {

Status listen(int device, Handle handle, Listener** listener) noexcept {
  *listener = nullptr;
  try {
    auto made = std::make_unique<Listener>();
    Contact& contact = made->contact;
    if (getrandom(contact.identity.data(), contact.identity.size(), 0) !=
        static_cast<ssize_t>(contact.identity.size())) {
      return Errc::kSystem;
    }
    const auto& table = offer().collnet;
    if (device >= 0 && static_cast<size_t>(device) < table.size()) {
      contact.address = table[static_cast<size_t>(device)].address;
      auto socket = transport::tcp::listen_on(
          contact.address, 0, {.buffer_bytes = 0, .congestion_control = {}, .local_address = {}});
      if (socket) {
        contact.port = transport::tcp::bound_port(socket->fd()).value_or(0);
        made->socket = std::move(*socket);
      } else {
        warn("%s", socket.error().text.c_str());  // told to all nodes as port 0
      }
    }
    write_handle(contact, handle);
    *listener = made.release();
    return {};
  } catch (const std::exception& e) {
    warn("listen: %s", e.what());
    return Errc::kSystem;
  }
}

Status connect(std::span<void* const> handles, Listener& listener, Comm** comm) noexcept {
  *comm = nullptr;
  try {
    auto joined = join(handles, listener, settings());
    if (!joined) {
      warn("offload OFF (%s)", joined.error().text.c_str());
      ledger().connect_failed(joined.error().text);
      if (has_stats_file()) {
        StatsLine line("refused");
        append_stats(line.number("nodes", handles.size()).text("why", joined.error().text));
      }
      return joined.error().code;
    }
    *comm = joined->release();
    ledger().connected();
    return {};
  } catch (const std::exception& e) {
    warn("connect: %s", e.what());
    return Errc::kSystem;
  }
}

bool supports(int data_type, int op) noexcept {
  return dtype_of(data_type) && op_of(op);
}

Status register_memory(Comm& comm, void* data, size_t bytes, void** handle) noexcept {
  try {
    const auto added = comm.ranges().add({.data = static_cast<const std::byte*>(data), .bytes = bytes});
    *handle = added.handle;
    if (added.first) comm.know({static_cast<std::byte*>(data), bytes});
    return {};
  } catch (const std::exception&) {
    *handle = nullptr;  // null is as good as any: TCP needs no registration, and an error here on one node
                        // hangs the others
    return {};
  }
}

void deregister_memory(Comm& comm, void* handle) noexcept {
  const auto range = comm.ranges().remove(handle);
  if (!range) return;
  comm.quiesce(*range);
  comm.forget({const_cast<std::byte*>(range->data), range->bytes});  // it came as one that may be written
}

Status iallreduce(Comm& comm, const void* send, void* receive, size_t count, int data_type, int op,
                  Request** request) noexcept {
  *request = nullptr;
  return comm.start(send, receive, count, data_type, op, request);
}

Status test(Request& request, bool* done, size_t* bytes) noexcept {
  return request.comm->test(request, done, bytes);
}

void close(Comm* comm) noexcept {
  if (comm == nullptr) return;
  comm->leave();
  delete comm;
}

void close(Listener* listener) noexcept {
  delete listener;
}

}  // namespace sluice::nccl::collnet
