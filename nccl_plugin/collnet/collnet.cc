#include "nccl_plugin/collnet/collnet.h"

#include <sys/random.h>

#include <exception>

#include "nccl_plugin/collnet/comm.h"
#include "nccl_plugin/collnet/listener.h"
#include "nccl_plugin/collnet/session_connect.h"
#include "nccl_plugin/collnet/types.h"
#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/process_stats.h"
#include "nccl_plugin/host/stats_file.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::nccl::collnet {

Status listen(int device, Handle handle, uint64_t communicator, Listener** listener) noexcept {
  *listener = nullptr;
  try {
    auto made = std::make_unique<Listener>();
    made->communicator = communicator;
    NodeHandle& own = made->handle;
    if (getrandom(own.identity.data(), own.identity.size(), 0) != static_cast<ssize_t>(own.identity.size())) {
      return Errc::kSystem;
    }
    const auto& table = capabilities().collnet;
    if (device >= 0 && static_cast<size_t>(device) < table.size()) {
      own.address = table[static_cast<size_t>(device)].address;
      auto socket = transport::tcp::listen_on(
          own.address, 0, {.buffer_bytes = 0, .congestion_control = {}, .local_address = {}});
      if (socket) {
        own.port = transport::tcp::bound_port(socket->fd()).value_or(0);
        made->socket = std::move(*socket);
      } else {
        warn("collnet listen: %s", socket.error().text.c_str());  // port 0 informs the other nodes
      }
    }
    encode_node_handle(own, handle);
    *listener = made.release();
    return {};
  } catch (const std::exception& e) {
    warn("collnet listen: %s", e.what());
    return Errc::kSystem;
  }
}

Status connect(std::span<void* const> handles, Listener& listener, Comm** comm) noexcept {
  *comm = nullptr;
  try {
    auto connected = connect_session(handles, listener, settings());
    if (!connected) {
      warn("offload OFF (%s)", connected.error().text.c_str());
      process_stats().add_failure(connected.error().text);
      if (has_stats_file()) {
        StatsLine line("refused");
        append_stats(line.number("nodes", handles.size())
                         .text("reason", to_string(OffReason::kRefused))
                         .text("why", connected.error().text));
      }
      return connected.error().code;
    }
    *comm = connected->release();
    process_stats().add_connection();
    return {};
  } catch (const std::exception& e) {
    warn("collnet connect: %s", e.what());
    return Errc::kSystem;
  }
}

bool supports(int data_type, int op) noexcept {
  return dtype_of(data_type) && op_of(op);
}

Status register_memory(Comm& comm, void* data, size_t bytes, void** handle) noexcept {
  try {
    const auto added =
        comm.registered_ranges().add({.data = static_cast<const std::byte*>(data), .bytes = bytes});
    *handle = added.handle;
    if (added.is_first) comm.register_memory({static_cast<std::byte*>(data), bytes});
    return {};
  } catch (const std::exception&) {
    // Reports success without a registration, which only costs a copy. An error on this node would hang the
    // others.
    *handle = nullptr;
    return {};
  }
}

void deregister_memory(Comm& comm, void* handle) noexcept {
  const auto range = comm.registered_ranges().remove(handle);
  if (!range) return;
  comm.quiesce(*range);
  comm.deregister_memory({const_cast<std::byte*>(range->data), range->bytes});  // NCCL passed it as writable
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
  comm->close();
  delete comm;
}

void close(Listener* listener) noexcept {
  delete listener;
}

}  // namespace sluice::nccl::collnet
