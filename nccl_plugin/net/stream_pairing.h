#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/net/connected_streams.h"
#include "nccl_plugin/net/handshake_frame.h"
#include "transport/rdma/pairing.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::net {

enum class Side : uint8_t { kSender, kReceiver };

// StreamPairing sets up a queue pair for one stream: the sender sends PAIR, the receiver answers PAIR, the
// sender sends PAIRED (protocol.md section 13). If the stream cannot have one, it stays on TCP. Never blocks.
class StreamPairing {
 public:
  StreamPairing(transport::tcp::Socket socket, Side side, const transport::rdma::RailChoice& choice)
      : socket_(std::move(socket)), side_(side), choice_(choice) {}

  // Returns kWouldBlock until the transport of the stream is decided. Other errors: the peer has closed the
  // connection or sent an invalid message.
  [[nodiscard]] Result<void> progress(Nanos now);
  // Why the stream uses TCP; empty: it has a queue pair.
  [[nodiscard]] const std::string& tcp_reason() const noexcept { return tcp_reason_; }
  [[nodiscard]] transport::tcp::Socket release() noexcept { return std::move(socket_); }

 private:
  enum class Step : uint8_t { kBegin, kReceivePair, kProbe, kReceivePaired, kDone };

  template <typename Message>
  [[nodiscard]] Result<void> send(const Message& message);
  template <typename Message>
  [[nodiscard]] Result<void> receive(Message& out);
  // Steps of the sender.
  [[nodiscard]] Result<void> send_offer();
  [[nodiscard]] Result<void> connect(Nanos now);
  [[nodiscard]] Result<void> probe(Nanos now);
  [[nodiscard]] Result<void> send_paired();
  // Steps of the receiver.
  [[nodiscard]] Result<void> answer_offer();
  [[nodiscard]] Result<void> connect_to(const wire::Pair& offer, std::vector<uint8_t>& address);
  [[nodiscard]] Result<void> receive_paired();

  void use_tcp(std::string reason);

  transport::tcp::Socket socket_;
  const Side side_;
  const transport::rdma::RailChoice& choice_;
  Step step_ = Step::kBegin;
  HandshakeFrame frame_;
  std::unique_ptr<transport::tcp::AttachedChannel> pair_;
  Nanos probe_since_ = 0;
  std::string tcp_reason_;
};

// StreamPairings runs the pairings of all streams of a comm at the same time.
class StreamPairings {
 public:
  // `choice` must outlive this. `rdma_required`: one of the sides accepts only RDMA.
  StreamPairings(ConnectedStreams connected, Side side, const transport::rdma::RailChoice& choice,
                 bool rdma_required, Nanos now);

  // Returns kWouldBlock until all streams are decided, kUnsupported when RDMA is required and a stream has no
  // queue pair, or kTimeout.
  [[nodiscard]] Result<ConnectedStreams> progress(Nanos now);

 private:
  [[nodiscard]] Result<ConnectedStreams> finish();

  ConnectedStreams connected_;
  const bool rdma_required_;
  const Nanos deadline_;
  std::vector<StreamPairing> streams_;
};

}  // namespace sluice::nccl::net
