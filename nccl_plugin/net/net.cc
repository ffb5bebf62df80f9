#include "nccl_plugin/net/net.h"

#include <memory>
#include <string>
#include <utility>

#include "core/clock.h"
#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/net/listener.h"
#include "nccl_plugin/net/pending_connects.h"
#include "nccl_plugin/net/recv_comm.h"
#include "nccl_plugin/net/send_comm.h"
#include "nccl_plugin/net/stream_drainer.h"
#include "nccl_plugin/net/stream_settings.h"

namespace sluice::nccl::net {
namespace {

PendingConnects& pending_connects() {
  // Never destroyed: threads of NCCL may still run while static objects are destroyed.
  static auto* const all = new PendingConnects;
  return *all;
}

Result<const Device*> find_device(int number) {
  const auto& devices = capabilities().net;
  if (number < 0 || static_cast<size_t>(number) >= devices.size()) {
    return fail(Errc::kInvalidArgument, "device " + std::to_string(number) +
                                            " does not exist; the plugin offers " +
                                            std::to_string(devices.size()) + " devices");
  }
  return &devices[static_cast<size_t>(number)];
}

Status log_error(const char* call, const Error& error) {
  warn("%s: %s", call, error.text.c_str());
  return error.code;
}

Result<Connector*> connector_for(int device, Handle handle, Nanos now) {
  const auto listen_handle = decode_listen_handle(handle);
  if (!listen_handle) return tl::unexpected(listen_handle.error());
  if (Connector* pending = pending_connects().find(connect_id(handle), listen_handle->secret)) return pending;
  const auto local = find_device(device);
  if (!local) return tl::unexpected(local.error());
  const auto& stream_options = stream_settings();
  if (!stream_options) return tl::unexpected(stream_options.error());
  auto connector =
      Connector::start(*listen_handle, (*local)->address, settings().streams, *stream_options, now);
  if (!connector) return tl::unexpected(connector.error());
  Connector* const started = connector->get();
  set_connect_id(handle, pending_connects().add(std::move(*connector), now));
  return started;
}

// Closes the streams at once after an error or with open requests, when no requested data can be lost by
// that. Returns true when the group can shut down in order instead.
bool can_shut_down(StreamGroup& group) noexcept {
  group.log_suppressed_failures();
  if (!group.error().ok()) {
    // After kBadLength a notice for the peer may still be queued, which a reset would drop.
    group.close_streams(group.error() == Status(Errc::kBadLength) ? Errc::kClosed : Errc::kReset);
    return false;
  }
  if (group.open_requests() > 0) {
    group.close_streams(Errc::kReset);
    return false;
  }
  return true;
}

}  // namespace

Status listen(int device, Handle handle, Listener** listener) {
  *listener = nullptr;
  const auto local = find_device(device);
  if (!local) return log_error("listen", local.error());
  const auto& stream_options = stream_settings();
  if (!stream_options) return log_error("listen", stream_options.error());
  auto opened = Listener::open((*local)->address, *stream_options, handle);
  if (!opened) return log_error("listen", opened.error());
  *listener = opened->release();
  return Errc::kOk;
}

Status connect(int device, Handle handle, SendComm** comm) {
  *comm = nullptr;
  const Nanos now = monotonic_now();
  const auto connector = connector_for(device, handle, now);
  if (!connector) return log_error("connect", connector.error());
  auto streams = (*connector)->progress(now);
  if (!streams && streams.error().code == Errc::kWouldBlock) return Errc::kOk;
  pending_connects().remove(connect_id(handle));
  if (!streams) return log_error("connect", streams.error());
  auto made = SendComm::make(std::move(*streams));
  if (!made) return log_error("connect", made.error());
  *comm = made->release();
  return Errc::kOk;
}

Status accept(Listener& listener, RecvComm** comm) {
  *comm = nullptr;
  auto streams = listener.accept(monotonic_now());
  if (!streams && streams.error().code == Errc::kWouldBlock) return Errc::kOk;
  if (!streams) return log_error("accept", streams.error());
  auto made = RecvComm::make(std::move(*streams));
  if (!made) return log_error("accept", made.error());
  *comm = made->release();
  return Errc::kOk;
}

Status isend(SendComm& comm, const std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  return comm.log_failure("isend", comm.send(data, bytes, tag, request));
}

Status irecv(RecvComm& comm, std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  return comm.log_failure("irecv", comm.receive(data, bytes, tag, request));
}

Status test(Request& request, bool* done, size_t* bytes) noexcept {
  *done = false;
  if (!request.done) request.group->progress();
  // A request that is done stays done after the end of the connection.
  if (!request.done) return request.group->log_failure("test", request.group->error());
  *done = true;
  if (bytes != nullptr) *bytes = request.bytes;
  request.release();
  return Errc::kOk;
}

void close(SendComm* comm) noexcept {
  std::unique_ptr<SendComm> owned(comm);
  if (!owned || !can_shut_down(*owned)) return;
  if (owned->uses_rdma_only()) {
    // A queue pair ends with its process, so draining in the background could lose data. The context is
    // destroyed with the group and waits for the delivery.
    owned->close_streams(Errc::kClosed);
    return;
  }
  owned->begin_shutdown();
  owned->poll(monotonic_now());  // informs the peer even if the process ends next
  if (owned->open_streams() > 0) drain_in_background(std::move(owned));
}

void close(RecvComm* comm) noexcept {
  std::unique_ptr<RecvComm> owned(comm);
  // All requested messages have arrived, so there is no data to wait for.
  if (!owned || !can_shut_down(*owned)) return;
  owned->close_streams(Errc::kClosed);
  // The end of a queue pair must still be delivered to the sender.
  if (owned->uses_rdma()) drain_in_background(std::move(owned));
}

void close(Listener* listener) noexcept {
  delete listener;
}

}  // namespace sluice::nccl::net
