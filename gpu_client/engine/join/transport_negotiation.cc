#include "gpu_client/engine/join/transport_negotiation.h"

#include <span>
#include <string>
#include <utility>

#include "gpu_client/engine/base/peer_error.h"
#include "transport/memory/pairing.h"
#include "transport/rdma/pairing.h"

namespace sluice::engine {
namespace {

// Exchanges PAIR and sends PAIRED. Returns why there is no queue pair; empty: the socket has one.
Result<std::string> negotiate_queue_pair(Handshake& h, const LaneSettings& settings,
                                         const Deadline& deadline) {
  wire::Pair ours;
  auto offer = transport::rdma::offer_pair(transport::rdma::connection_gids(h.socket.fd()), settings.choice,
                                           {.memory = settings.memory});
  if (offer) {
    ours.address = offer->address;
  } else {
    ours.reason = offer.error().text;
  }
  auto theirs = send_request<wire::Pair>(h, ours, deadline);
  if (!theirs) return tl::unexpected(theirs.error());
  if (!offer) return ours.reason;
  if (theirs->address.empty()) {
    return "reducer has no queue pair: " + (theirs->reason.empty()
                                                ? std::string("no reason sent")
                                                : replace_control_characters(std::move(theirs->reason)));
  }
  const auto address = std::as_bytes(std::span(theirs->address));
  auto connected =
      transport::rdma::connect_pair(*offer->pair, transport::rdma::connection_gids(h.socket.fd()), address);
  if (connected) connected = transport::rdma::probe_pair(*offer->pair, deadline);
  wire::Paired paired;
  paired.ready = connected ? 1 : 0;
  if (!connected) paired.reason = connected.error().text;
  if (auto sent = send_frame(h, wire::encode_message(paired), deadline); !sent)
    return tl::unexpected(sent.error());
  if (!connected) {
    // The reducer answers with an empty PAIR, or refuses.
    if (auto answer = receive_body(h, wire::FrameType::kPair, deadline); !answer)
      return tl::unexpected(answer.error());
    return connected.error().text;
  }
  h.socket.attach_channel(std::move(offer->pair));
  return std::string();
}

// Exchanges PAIR with the reducer of this process. Returns why there is no pipe; empty: the socket has one.
Result<std::string> negotiate_pipe(Handshake& h, const Deadline& deadline) {
  auto offer = transport::memory::OfferedPipe::make();
  wire::Pair ours;
  if (offer) {
    ours.address.assign(offer->key().begin(), offer->key().end());
  } else {
    ours.reason = offer.error().text;
  }
  auto theirs = send_request<wire::Pair>(h, ours, deadline);
  if (!theirs) return tl::unexpected(theirs.error());
  if (!offer) return ours.reason;
  if (theirs->address.empty()) return replace_control_characters(std::move(theirs->reason));
  h.socket.attach_channel(offer->take_near_end());
  return std::string();
}

}  // namespace

Result<void> negotiate_lane_transport(Handshake& handshake, const LaneSettings& settings,
                                      const Deadline& deadline) {
  if ((handshake.hello.features & handshake.welcome.features & wire::kFeatureMemory) != 0) {
    auto negotiated = negotiate_pipe(handshake, deadline);
    if (!negotiated) return tl::unexpected(negotiated.error());
    handshake.tcp_reason = std::move(*negotiated);
    return {};
  }
  if (!settings.rdma) {
    handshake.tcp_reason = settings.rdma_error;
    return {};
  }
  std::string reason;  // why the connection cannot use a queue pair
  if (handshake.socket.tls() != nullptr) {
    reason = "the connection uses TLS";
  } else if ((handshake.welcome.features & wire::kFeatureRdma) == 0) {
    reason = "the reducer does not offer RDMA";
  } else {
    auto negotiated = negotiate_queue_pair(handshake, settings, deadline);
    if (!negotiated) return tl::unexpected(negotiated.error());
    reason = std::move(*negotiated);
  }
  if (!reason.empty() && settings.rdma_required) {
    return fail(Errc::kUnsupported,
                handshake.name + ": RDMA is required, but a lane connection cannot use it: " + reason);
  }
  handshake.tcp_reason = std::move(reason);
  return {};
}

}  // namespace sluice::engine
