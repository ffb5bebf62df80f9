#include "nccl_plugin/net/listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/net/limits.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "wire/handshake.h"

namespace sluice::nccl::net {

using transport::tcp::Socket;

Result<std::unique_ptr<Listener>> Listener::open(const std::string& address, const StreamSettings& settings,
                                                 Handle handle) {
  auto secret = new_secret();
  if (!secret) return tl::unexpected(secret.error());
  auto socket = transport::tcp::listen_on(address, 0, {}, static_cast<int>(kMaxUnauthenticated));
  if (!socket) return tl::unexpected(socket.error());
  ListenHandle listen_handle{.secret = *secret, .features = stream_features(settings)};
  socklen_t size = sizeof listen_handle.address;
  if (::getsockname(socket->fd(), reinterpret_cast<sockaddr*>(&listen_handle.address), &size) != 0)
    return fail(Errc::kSystem, "cannot read the bound address: " + transport::tcp::error_text(errno));
  encode_listen_handle(listen_handle, handle);
  return std::unique_ptr<Listener>(new Listener(std::move(*socket), *secret, settings));
}

Result<ConnectedStreams> Listener::accept(Nanos now) {
  if (pairings_) return finish_pairing(now);
  if (deadline_ == 0) deadline_ = now + kPeerTimeout;
  if (!context_) {
    auto context = transport::rdma::make_context();
    if (!context) return tl::unexpected(context.error());
    context_ = std::move(*context);
  }
  const bool all_accepted = accept_connections(now);
  if (auto read = read_offers(now); !read) return tl::unexpected(read.error());
  if (pending_.size() == kMaxUnauthenticated) pending_.pop_front();  // each was read at least once
  const bool no_more = !all_accepted && pending_.empty();
  if (connected_ > 0 && (connected_ == streams_.size() || no_more)) {
    auto answered = answer_all();
    if (!answered) return answered;
    return start_pairing(std::move(*answered), now);
  }
  if (now < deadline_) return fail(Errc::kWouldBlock, "");
  if (connected_ == 0)
    return fail(Errc::kTimeout,
                "sender did not connect within " + std::to_string(kPeerTimeout / kSecond) + " s");
  return fail(Errc::kTimeout, "only " + std::to_string(connected_) + " of " +
                                  std::to_string(streams_.size()) +
                                  " connections of the sender arrived within " +
                                  std::to_string(kSetupTimeout / kSecond) + " s");
}

bool Listener::accept_connections(Nanos now) {
  // Bounded, so that a flood of connections cannot keep the call from returning. Further connections wait in
  // the backlog.
  for (size_t i = 0; i < kMaxUnauthenticated && pending_.size() < kMaxUnauthenticated; ++i) {
    Socket socket(::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE) return true;
      if (!std::exchange(logged_exhausted_, true))
        warn("accept: %s after %zu of %zu connections", transport::tcp::error_text(errno).c_str(), connected_,
             streams_.size());
      return false;
    }
    pending_.push_back({.socket = std::move(socket), .deadline = now + kHandshakeTimeout, .frame = {}});
  }
  return true;
}

Result<void> Listener::read_offers(Nanos now) {
  for (size_t i = 0; i < pending_.size();) {
    PendingConnection& connection = pending_[i];
    const Status read = connection.frame.read(connection.socket.fd());
    if (read == Status(Errc::kWouldBlock) && now < connection.deadline) {
      ++i;
      continue;
    }
    wire::StreamOffer offer;
    const bool is_sender = read.ok() && decode_stream_offer(connection.frame.bytes(), offer).ok() &&
                           secrets_equal(offer.stream.secret, secret_);
    Socket socket = std::move(connection.socket);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!is_sender) {
      if (!std::exchange(logged_stranger_, true)) {
        info("dropped connections that did not send the secret of the sender, the first from %s",
             transport::tcp::peer_name(socket.fd()).c_str());
      }
      continue;
    }
    if (auto added = add_stream(std::move(socket), offer, now); !added) return added;
  }
  return {};
}

// The peer knows the secret, so an invalid offer is an error and not the message of another program.
Result<void> Listener::add_stream(Socket socket, const wire::StreamOffer& offer, Nanos now) {
  const wire::Stream& stream = offer.stream;
  const std::string peer = transport::tcp::peer_name(socket.fd());
  const auto refuse = [&](Errc code, const std::string& text) -> Result<void> {
    if (!send_frame(socket.fd(), wire::encode_message(wire::StreamAnswer{.code = code})).ok())
      return fail(code, peer + ": " + text + " (the peer closed the connection before the refusal)");
    return fail(code, peer + ": " + text);
  };
  const auto version = wire::common_version(stream.min_version, stream.max_version);
  if (!version) {
    return refuse(Errc::kNoCommonVersion,
                  "sender supports protocol " + wire::version_range(stream.min_version, stream.max_version) +
                      ", this side supports " + wire::version_range(wire::kVersionMin, wire::kVersionMax));
  }
  if (stream.count == 0 || stream.count > kMaxStreams ||
      (!streams_.empty() && stream.count != streams_.size()))
    return refuse(Errc::kBadField,
                  "sender opens an invalid number of streams: " + std::to_string(stream.count));
  if (settings_.rdma_required && (offer.features & wire::kStreamRdma) == 0)
    return refuse(Errc::kMismatch, rdma_required_error("the sender does not offer RDMA").text);
  if (!streams_.empty() && offer.features != features_)
    return refuse(Errc::kBadField, "sender offers different features on its streams");
  if (streams_.empty()) {
    features_ = offer.features;
    streams_.resize(stream.count);
    deadline_ = now + kSetupTimeout;
  }
  if (stream.index >= streams_.size() || streams_[stream.index].valid())
    return refuse(Errc::kBadField, "sender opens stream " + std::to_string(stream.index) + " of " +
                                       std::to_string(stream.count) + ": out of range or opened twice");
  streams_[stream.index] = std::move(socket);
  version_ = *version;
  ++connected_;
  return {};
}

Result<ConnectedStreams> Listener::answer_all() {
  std::erase_if(streams_, [](const Socket& s) { return !s.valid(); });
  const auto answer = wire::encode_message(
      wire::StreamAnswer{.version = version_, .count = static_cast<uint16_t>(streams_.size())});
  for (const Socket& s : streams_) {
    if (!send_frame(s.fd(), answer).ok())
      return fail(Errc::kReset, "sender closed the connection before the handshake finished");
  }
  connected_ = 0;
  deadline_ = 0;  // the next sender gets the full timeout
  return ConnectedStreams{.context = std::move(context_), .sockets = std::move(streams_)};
}

Result<ConnectedStreams> Listener::start_pairing(ConnectedStreams answered, Nanos now) {
  if ((stream_features(settings_) & features_ & wire::kStreamRdma) == 0) {
    if (settings_.rdma) answered.transport_text = "streams over TCP: the sender does not offer RDMA";
    return answered;
  }
  const bool rdma_required = settings_.rdma_required || (features_ & wire::kStreamRdmaOnly) != 0;
  pairings_.emplace(std::move(answered), Side::kReceiver, settings_.choice, rdma_required, now);
  return finish_pairing(now);
}

Result<ConnectedStreams> Listener::finish_pairing(Nanos now) {
  auto paired = pairings_->progress(now);
  if (!paired && paired.error().code == Errc::kWouldBlock) return paired;
  pairings_.reset();
  return paired;
}

}  // namespace sluice::nccl::net
