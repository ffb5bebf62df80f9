#include "nccl_plugin/net/stream_pairing.h"

#include <span>
#include <utility>

#include "gpu_client/engine/base/peer_error.h"
#include "nccl_plugin/net/limits.h"
#include "nccl_plugin/net/stream_settings.h"

namespace sluice::nccl::net {
namespace {

namespace rdma = transport::rdma;

std::string peer_reason(std::string reason) {
  if (reason.empty()) return "peer: no reason given";
  return "peer: " + engine::replace_control_characters(std::move(reason));
}

}  // namespace

template <typename Message>
Result<void> StreamPairing::send(const Message& message) {
  if (!send_frame(socket_.fd(), wire::encode_message(message)).ok())
    return fail(Errc::kReset, "connection lost during queue pair setup");
  return {};
}

template <typename Message>
Result<void> StreamPairing::receive(Message& out) {
  Status s = frame_.read(socket_.fd());
  if (s == Status(Errc::kWouldBlock)) return fail(Errc::kWouldBlock, "");
  if (s == Status(Errc::kClosed) || s == Status(Errc::kReset))
    return fail(s.code(), "connection closed during queue pair setup");
  if (s.ok()) s = decode_message(frame_.bytes(), out);
  if (!s.ok())
    return fail(s.code(), std::string("expected ") + wire::to_string(Message::kType) +
                              ", received an invalid message: " + std::string(to_string(s.code())));
  frame_ = {};
  return {};
}

void StreamPairing::use_tcp(std::string reason) {
  pair_.reset();
  if (tcp_reason_.empty()) tcp_reason_ = std::move(reason);
}

Result<void> StreamPairing::progress(Nanos now) {
  Result<void> result;
  while (result && step_ != Step::kDone) {
    switch (step_) {
      case Step::kBegin:
        if (side_ == Side::kSender) result = send_offer();
        step_ = Step::kReceivePair;
        break;
      case Step::kReceivePair: result = side_ == Side::kSender ? connect(now) : answer_offer(); break;
      case Step::kProbe: result = probe(now); break;
      case Step::kReceivePaired: result = receive_paired(); break;
      case Step::kDone: break;
    }
  }
  return result;
}

Result<void> StreamPairing::send_offer() {
  wire::Pair message;
  if (auto offer = rdma::offer_pair(rdma::connection_gids(socket_.fd()), choice_)) {
    pair_ = std::move(offer->pair);
    message.address = std::move(offer->address);
  } else {
    use_tcp(offer.error().text);
    message.reason = tcp_reason_;
  }
  return send(message);
}

Result<void> StreamPairing::connect(Nanos now) {
  wire::Pair answer;
  if (auto received = receive(answer); !received) return received;
  if (!pair_) return send_paired();
  if (answer.address.empty()) {
    use_tcp(peer_reason(std::move(answer.reason)));
    return send_paired();
  }
  auto started = rdma::connect_pair(*pair_, rdma::connection_gids(socket_.fd()),
                                    std::as_bytes(std::span(answer.address)));
  if (started) started = rdma::start_probe(*pair_);
  if (!started) {
    use_tcp(started.error().text);
    return send_paired();
  }
  probe_since_ = now;
  step_ = Step::kProbe;
  return {};
}

Result<void> StreamPairing::probe(Nanos now) {
  auto probed = rdma::poll_probe(*pair_, probe_since_, now);
  if (!probed && probed.error().code == Errc::kWouldBlock) return probed;
  if (!probed) use_tcp(probed.error().text);
  return send_paired();
}

Result<void> StreamPairing::send_paired() {
  wire::Paired paired;
  paired.ready = pair_ ? 1 : 0;
  paired.reason = tcp_reason_;
  if (pair_) socket_.attach_channel(std::move(pair_));
  step_ = Step::kDone;
  return send(paired);
}

Result<void> StreamPairing::answer_offer() {
  wire::Pair offer;
  if (auto received = receive(offer); !received) return received;
  wire::Pair answer;
  if (auto connected = connect_to(offer, answer.address); !connected) {
    use_tcp(connected.error().text);
    answer.reason = tcp_reason_;
  }
  step_ = Step::kReceivePaired;
  return send(answer);
}

// Called before the answer is sent: the sender may use the queue pair as soon as it has the answer.
Result<void> StreamPairing::connect_to(const wire::Pair& offer, std::vector<uint8_t>& address) {
  if (offer.address.empty()) return fail(Errc::kUnsupported, peer_reason(offer.reason));
  const auto gids = rdma::connection_gids(socket_.fd());
  if (!gids) return tl::unexpected(gids.error());
  const auto peer_address = std::as_bytes(std::span(offer.address));
  if (auto checked = rdma::check_pair_address(*gids, peer_address); !checked) return checked;
  auto own = rdma::offer_pair(*gids, choice_);
  if (!own) return tl::unexpected(own.error());
  if (auto connected = rdma::connect_pair(*own->pair, *gids, peer_address); !connected) return connected;
  pair_ = std::move(own->pair);
  address = std::move(own->address);
  return {};
}

Result<void> StreamPairing::receive_paired() {
  wire::Paired paired;
  if (auto received = receive(paired); !received) return received;
  if (paired.ready != 0 && !pair_)
    return fail(Errc::kBadField, "sender uses a queue pair that does not exist");
  if (paired.ready == 0) {
    use_tcp(peer_reason(std::move(paired.reason)));
  } else {
    socket_.attach_channel(std::move(pair_));
  }
  step_ = Step::kDone;
  return {};
}

StreamPairings::StreamPairings(ConnectedStreams connected, Side side, const rdma::RailChoice& choice,
                               bool rdma_required, Nanos now)
    : connected_(std::move(connected)), rdma_required_(rdma_required), deadline_(now + kPeerTimeout) {
  streams_.reserve(connected_.sockets.size());
  for (transport::tcp::Socket& s : connected_.sockets) streams_.emplace_back(std::move(s), side, choice);
}

Result<ConnectedStreams> StreamPairings::progress(Nanos now) {
  bool all_done = true;
  for (StreamPairing& s : streams_) {
    if (auto result = s.progress(now); !result) {
      if (result.error().code != Errc::kWouldBlock) return tl::unexpected(result.error());
      all_done = false;
    }
  }
  if (all_done) return finish();
  if (now < deadline_) return fail(Errc::kWouldBlock, "");
  return fail(Errc::kTimeout, "peer did not complete the queue pair setup within " +
                                  std::to_string(kPeerTimeout / kSecond) + " s");
}

Result<ConnectedStreams> StreamPairings::finish() {
  size_t tcp_streams = 0;
  std::string reason;
  for (const StreamPairing& s : streams_) {
    if (s.tcp_reason().empty()) continue;
    ++tcp_streams;
    if (reason.empty()) reason = s.tcp_reason();
  }
  if (rdma_required_ && tcp_streams > 0) return tl::unexpected(rdma_required_error(reason));
  std::string& text = connected_.transport_text;
  text = tcp_streams == streams_.size() ? "streams over TCP" : "streams over RDMA";
  if (tcp_streams > 0 && tcp_streams < streams_.size())
    text += ", " + std::to_string(tcp_streams) + " of " + std::to_string(streams_.size()) + " over TCP";
  if (tcp_streams > 0) text += ": " + reason;
  for (size_t i = 0; i < streams_.size(); ++i) connected_.sockets[i] = streams_[i].release();
  return std::move(connected_);
}

}  // namespace sluice::nccl::net
