#include "nccl_plugin/net/listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "nccl_plugin/host/log.h"
#include "nccl_plugin/net/limits.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/address.h"
#include "wire/handshake.h"

namespace sluice::nccl::net {

using transport::tcp::Socket;

Result<std::unique_ptr<Listener>> Listener::open(const std::string& address, const StreamTerms& terms,
                                                 Handle handle) {
  auto secret = new_secret();
  if (!secret) return tl::unexpected(secret.error());
  auto socket = transport::tcp::listen_on(address, 0, {}, static_cast<int>(kMaxStrangers));
  if (!socket) return tl::unexpected(socket.error());
  Invitation invitation{.secret = *secret, .features = features_of(terms)};
  socklen_t size = sizeof invitation.address;
  if (::getsockname(socket->fd(), reinterpret_cast<sockaddr*>(&invitation.address), &size) != 0)
    return fail(Errc::kSystem, "cannot read the bound address: " + transport::tcp::error_text(errno));
  write_invitation(invitation, handle);
  return std::unique_ptr<Listener>(new Listener(std::move(*socket), *secret, terms));
}

Result<GreetedStreams> Listener::accept(Nanos now) {
  if (pairings_) return wait_for_pairs(now);
  if (deadline_ == 0) deadline_ = now + kPeerDeadline;
  if (!context_) {
    auto context = transport::rdma::make_context();
    if (!context) return tl::unexpected(context.error());
    context_ = std::move(*context);
  }
  const bool all_taken = take_callers(now);
  if (auto heard = hear_callers(now); !heard) return tl::unexpected(heard.error());
  if (callers_.size() == kMaxStrangers) callers_.pop_front();  // each was heard at least once
  const bool no_more = !all_taken && callers_.empty();
  if (greeted_ > 0 && (greeted_ == streams_.size() || no_more)) {
    auto answered = answer_all();
    if (!answered) return answered;
    return agree_on_pairs(std::move(*answered), now);
  }
  if (now < deadline_) return fail(Errc::kWouldBlock, "");
  if (greeted_ == 0)
    return fail(Errc::kTimeout,
                "the sender did not come in " + std::to_string(kPeerDeadline / kSecond) + " s");
  return fail(Errc::kTimeout, "only " + std::to_string(greeted_) + " of the sender's " +
                                  std::to_string(streams_.size()) + " connections came in " +
                                  std::to_string(kSetupDeadline / kSecond) + " s");
}

bool Listener::take_callers(Nanos now) {
  // So many at most in one call: it must end, whoever keeps connecting. Those for whom there is no place wait
  // in the backlog.
  for (size_t i = 0; i < kMaxStrangers && callers_.size() < kMaxStrangers; ++i) {
    Socket socket(::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE) return true;
      if (!std::exchange(told_exhausted_, true))
        warn("accept: %s with %zu connections of %zu taken", transport::tcp::error_text(errno).c_str(),
             greeted_, streams_.size());
      return false;
    }
    callers_.push_back({.socket = std::move(socket), .deadline = now + kStrangerDeadline, .frame = {}});
  }
  return true;
}

Result<void> Listener::hear_callers(Nanos now) {
  for (size_t i = 0; i < callers_.size();) {
    Caller& caller = callers_[i];
    const Status read = caller.frame.read(caller.socket.fd());
    if (read == Status(Errc::kWouldBlock) && now < caller.deadline) {
      ++i;
      continue;
    }
    wire::StreamOffer offer;
    const bool knows = read.ok() && decode_opening(caller.frame.bytes(), offer).ok() &&
                       same_secret(offer.stream.secret, secret_);
    Socket socket = std::move(caller.socket);
    callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!knows) {
      info("a connection to a receiver's port from %s was not the sender's: dropped",
           transport::tcp::peer_name(socket.fd()).c_str());
      continue;
    }
    if (auto greeted = greet(std::move(socket), offer, now); !greeted) return greeted;
  }
  return {};
}

// Of a peer that knows the secret: what is wrong here is wrong for good.
Result<void> Listener::greet(Socket socket, const wire::StreamOffer& offer, Nanos now) {
  const wire::Stream& stream = offer.stream;
  const std::string peer = transport::tcp::peer_name(socket.fd());
  const auto refuse = [&](Errc code, const std::string& text) -> Result<void> {
    if (!send_frame(socket.fd(), wire::encode_message(wire::StreamAnswer{.code = code})).ok())
      return fail(code, peer + ": " + text + " (and it was gone before it was told)");
    return fail(code, peer + ": " + text);
  };
  const auto version = wire::common_version(stream.min_version, stream.max_version);
  if (!version) {
    return refuse(Errc::kNoCommonVersion,
                  "sender speaks protocol " + wire::version_range(stream.min_version, stream.max_version) +
                      ", this side " + wire::version_range(wire::kVersionMin, wire::kVersionMax));
  }
  if (stream.count == 0 || stream.count > kMaxStreams ||
      (!streams_.empty() && stream.count != streams_.size()))
    return refuse(Errc::kBadField, "sender opens " + std::to_string(stream.count) + " streams");
  if (terms_.only_rdma && (offer.features & wire::kStreamRdma) == 0)
    return refuse(Errc::kMismatch, rdma_is_needed("the sender offers none").text);
  if (!streams_.empty() && offer.features != features_)
    return refuse(Errc::kBadField, "sender offers other features on another stream");
  if (streams_.empty()) {
    features_ = offer.features;
    streams_.resize(stream.count);
    deadline_ = now + kSetupDeadline;
  }
  if (stream.index >= streams_.size() || streams_[stream.index].valid())
    return refuse(Errc::kBadField, "sender opens stream " + std::to_string(stream.index) + " of " +
                                       std::to_string(stream.count) + " out of range, or twice");
  streams_[stream.index] = std::move(socket);
  version_ = *version;
  ++greeted_;
  return {};
}

Result<GreetedStreams> Listener::answer_all() {
  std::erase_if(streams_, [](const Socket& s) { return !s.valid(); });
  const auto answer = wire::encode_message(
      wire::StreamAnswer{.version = version_, .count = static_cast<uint16_t>(streams_.size())});
  for (const Socket& s : streams_) {
    if (!send_frame(s.fd(), answer).ok())
      return fail(Errc::kReset, "the sender is gone before it was answered");
  }
  greeted_ = 0;
  deadline_ = 0;  // another sender may come: it has all its time
  return GreetedStreams{.context = std::move(context_), .sockets = std::move(streams_)};
}

Result<GreetedStreams> Listener::agree_on_pairs(GreetedStreams answered, Nanos now) {
  if ((features_of(terms_) & features_ & wire::kStreamRdma) == 0) {
    if (terms_.rdma) answered.way = "streams over TCP: the sender offers no RDMA";
    return answered;
  }
  const bool alone = terms_.only_rdma || (features_ & wire::kStreamRdmaAlone) != 0;
  pairings_.emplace(std::move(answered), End::kReceiver, terms_.choice, alone, now);
  return wait_for_pairs(now);
}

Result<GreetedStreams> Listener::wait_for_pairs(Nanos now) {
  auto paired = pairings_->progress(now);
  if (!paired && paired.error().code == Errc::kWouldBlock) return paired;
  pairings_.reset();
  return paired;
}

}  // namespace sluice::nccl::net
