#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/net/connected_streams.h"
#include "nccl_plugin/net/handshake_frame.h"
#include "nccl_plugin/net/listen_handle.h"
#include "nccl_plugin/net/stream_pairing.h"
#include "nccl_plugin/net/stream_settings.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::nccl::net {

// Listener accepts the streams of one sender. Other connections are dropped and do not affect the sender.
class Listener {
 public:
  // Listens on `address` (numeric) and a free port, and writes both into `handle`. `settings` must outlive
  // the listener.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(const std::string& address,
                                                              const StreamSettings& settings, Handle handle);

  // Returns kWouldBlock until all streams are connected. Never blocks. Other errors are final for this
  // sender.
  [[nodiscard]] Result<ConnectedStreams> accept(Nanos now);

 private:
  struct PendingConnection {
    transport::tcp::Socket socket;
    Nanos deadline;
    HandshakeFrame frame;
  };

  Listener(transport::tcp::Socket socket, const Secret& secret, const StreamSettings& settings)
      : socket_(std::move(socket)), secret_(secret), settings_(settings) {}
  // Returns false when the process ran out of descriptors.
  [[nodiscard]] bool accept_connections(Nanos now);
  [[nodiscard]] Result<void> read_offers(Nanos now);
  [[nodiscard]] Result<void> add_stream(transport::tcp::Socket socket, const wire::StreamOffer& offer,
                                        Nanos now);
  [[nodiscard]] Result<ConnectedStreams> answer_all();
  [[nodiscard]] Result<ConnectedStreams> start_pairing(ConnectedStreams answered, Nanos now);
  [[nodiscard]] Result<ConnectedStreams> finish_pairing(Nanos now);

  transport::tcp::Socket socket_;
  const Secret secret_;
  const StreamSettings& settings_;
  // Created before the streams are accepted, which may use up the descriptors.
  std::unique_ptr<transport::tcp::TcpContext> context_;
  Nanos deadline_ = 0;  // 0 before the first accept()
  bool logged_exhausted_ = false;
  bool logged_stranger_ = false;
  std::deque<PendingConnection> pending_;  // have not sent the secret
  // By index, as many as the sender opens; missing streams are not valid.
  std::vector<transport::tcp::Socket> streams_;
  size_t connected_ = 0;
  uint8_t version_ = 0;
  uint64_t features_ = 0;                   // of the sender
  std::optional<StreamPairings> pairings_;  // of a sender that was answered
};

}  // namespace sluice::nccl::net
