#include "nccl_plugin/net/net.h"

#include <memory>
#include <string>
#include <utility>

#include "core/clock.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/offer.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/net/closer.h"
#include "nccl_plugin/net/connects.h"
#include "nccl_plugin/net/listener.h"
#include "nccl_plugin/net/recv_comm.h"
#include "nccl_plugin/net/send_comm.h"
#include "nccl_plugin/net/stream_terms.h"

namespace sluice::nccl::net {
namespace {

Connects& connects() {
  static auto* const all = new Connects;  // never destroyed: threads of NCCL may run on while statics end
  return *all;
}

Result<const Device*> device_of(int number) {
  const auto& devices = offer().net;
  if (number < 0 || static_cast<size_t>(number) >= devices.size()) {
    return fail(Errc::kInvalidArgument,
                "device " + std::to_string(number) + " of " + std::to_string(devices.size()));
  }
  return &devices[static_cast<size_t>(number)];
}

Status tell(const char* what, const Error& error) {
  warn("%s: %s", what, error.text.c_str());
  return error.code;
}

Result<Connector*> connector_for(int device, Handle handle, Nanos now) {
  const auto invitation = read_invitation(handle);
  if (!invitation) return tl::unexpected(invitation.error());
  if (Connector* under_way = connects().find(connect_number(handle), invitation->secret)) return under_way;
  const auto from = device_of(device);
  if (!from) return tl::unexpected(from.error());
  const auto& terms = stream_terms();
  if (!terms) return tl::unexpected(terms.error());
  auto connector = Connector::start(*invitation, (*from)->address, settings().streams, *terms, now);
  if (!connector) return tl::unexpected(connector.error());
  Connector* const started = connector->get();
  set_connect_number(handle, connects().add(std::move(*connector), now));
  return started;
}

// False when its streams had to be cut: nothing that was asked for may be lost by that any more.
bool may_end_in_order(StreamGroup& group) noexcept {
  if (!group.error().ok()) {
    group.cut(group.error() == Status(Errc::kBadLength) ? Errc::kClosed
                                                        : Errc::kReset);  // a notice may still be on its way
    return false;
  }
  if (group.open_requests() > 0) {
    group.cut(Errc::kReset);
    return false;
  }
  return true;
}

}  // namespace

Status listen(int device, Handle handle, Listener** listener) {
  *listener = nullptr;
  const auto at = device_of(device);
  if (!at) return tell("listen", at.error());
  const auto& terms = stream_terms();
  if (!terms) return tell("listen", terms.error());
  auto opened = Listener::open((*at)->address, *terms, handle);
  if (!opened) return tell("listen", opened.error());
  *listener = opened->release();
  return Errc::kOk;
}

Status connect(int device, Handle handle, SendComm** comm) {
  *comm = nullptr;
  const Nanos now = monotonic_now();
  const auto connector = connector_for(device, handle, now);
  if (!connector) return tell("connect", connector.error());
  auto streams = (*connector)->progress(now);
  if (!streams && streams.error().code == Errc::kWouldBlock) return Errc::kOk;
  connects().remove(connect_number(handle));
  if (!streams) return tell("connect", streams.error());
  auto made = SendComm::make(std::move(*streams));
  if (!made) return tell("connect", made.error());
  *comm = made->release();
  return Errc::kOk;
}

Status accept(Listener& listener, RecvComm** comm) {
  *comm = nullptr;
  auto streams = listener.accept(monotonic_now());
  if (!streams && streams.error().code == Errc::kWouldBlock) return Errc::kOk;
  if (!streams) return tell("accept", streams.error());
  auto made = RecvComm::make(std::move(*streams));
  if (!made) return tell("accept", made.error());
  *comm = made->release();
  return Errc::kOk;
}

Status isend(SendComm& comm, const std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  return comm.send(data, bytes, tag, request);
}

Status irecv(RecvComm& comm, std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  return comm.receive(data, bytes, tag, request);
}

Status test(Request& request, bool* done, size_t* bytes) noexcept {
  *done = false;
  if (!request.done) request.group->drive();
  // What arrived before the end of the connection has arrived.
  if (!request.done) return request.group->error();
  *done = true;
  if (bytes != nullptr) *bytes = request.bytes;
  request.release();
  return Errc::kOk;
}

void close(SendComm* comm) noexcept {
  std::unique_ptr<SendComm> owned(comm);
  if (!owned || !may_end_in_order(*owned)) return;
  if (owned->all_over_rdma()) {
    // Nobody sends on for a queue pair whose process ends next: with the group its context ends, which waits
    // until all has arrived.
    owned->cut(Errc::kClosed);
    return;
  }
  owned->begin_ending();
  owned->poll(monotonic_now());  // the peer is told now, even if the process ends next
  if (owned->streams_left() > 0) end_in_background(std::move(owned));
}

void close(RecvComm* comm) noexcept {
  std::unique_ptr<RecvComm> owned(comm);
  // Every message asked for is here, and nothing else may come: there is nothing to wait for.
  if (!owned || !may_end_in_order(*owned)) return;
  owned->cut(Errc::kClosed);
  // But for the word that says so.
  if (owned->any_over_rdma()) end_in_background(std::move(owned));
}

void close(Listener* listener) noexcept {
  delete listener;
}

}  // namespace sluice::nccl::net
