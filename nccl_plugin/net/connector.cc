#include "nccl_plugin/net/connector.h"

#include <algorithm>
#include <utility>

#include "nccl_plugin/host/log.h"
#include "nccl_plugin/net/limits.h"
#include "nccl_plugin/net/stream_socket.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/address.h"

namespace sluice::nccl::net {

Connector::Connector(const Invitation& invitation, const StreamTerms& terms, Nanos now)
    : invitation_(invitation),
      terms_(terms),
      peer_(transport::tcp::address_text(invitation.address)),
      deadline_(now + kSetupDeadline) {}

bool Connector::pairs() const noexcept {
  return (features_of(terms_) & invitation_.features & wire::kStreamRdma) != 0;
}

bool Connector::pairs_alone() const noexcept {
  return ((features_of(terms_) | invitation_.features) & wire::kStreamRdmaAlone) != 0;
}

bool Connector::forgotten(Nanos now) const noexcept {
  return now > deadline_ + kPeerDeadline;
}

Result<std::unique_ptr<Connector>> Connector::start(const Invitation& invitation,
                                                    const std::string& local_address, unsigned streams,
                                                    const StreamTerms& terms, Nanos now) {
  std::unique_ptr<Connector> c(new Connector(invitation, terms, now));
  if (terms.only_rdma && !c->pairs())
    return add_context(c->peer_, rdma_is_needed("the receiver offers none"));
  auto context = transport::rdma::make_context();
  if (!context) return tl::unexpected(context.error());
  c->context_ = std::move(*context);
  streams = std::clamp(streams, 1u, kMaxStreams);
  c->streams_.reserve(streams);
  for (unsigned i = 0; i < streams; ++i) {
    auto socket = begin_connect(invitation.address, local_address);
    if (!socket && socket.error().code == Errc::kExhausted && i > 0) {
      warn("connect to %s: %s: %u of %u connections are opened", c->peer_.c_str(),
           socket.error().text.c_str(), i, streams);
      break;
    }
    if (!socket) return add_context(c->peer_, socket.error());
    c->streams_.push_back({.socket = std::move(*socket), .answer = {}});
  }
  return c;
}

Result<GreetedStreams> Connector::progress(Nanos now) {
  if (!pairings_) {
    auto answered = hear_answers(now);
    if (!answered) return answered;
    if (!pairs()) {
      if (terms_.rdma) answered->way = "streams over TCP: the receiver offers no RDMA";
      return answered;
    }
    pairings_.emplace(std::move(*answered), End::kSender, terms_.choice, pairs_alone(), now);
    deadline_ = now + kPeerDeadline;
  }
  auto paired = pairings_->progress(now);
  if (!paired) return add_context(peer_, paired.error());
  return paired;
}

Result<GreetedStreams> Connector::hear_answers(Nanos now) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (auto advanced = advance(i, now); !advanced) return add_context(peer_, advanced.error());
  }
  if (answers_ > 0 && answers_ == answers_to_come_) return streams_that_were_answered();
  const auto open = std::ranges::count_if(streams_, [](const Stream& s) { return s.socket.valid(); });
  if (open == 0 || static_cast<size_t>(open) < answers_to_come_)
    return fail(Errc::kReset, peer_ + ": connection closed by the receiver before it answered");
  if (now < deadline_) return fail(Errc::kWouldBlock, "");
  const bool connected = greeted_ == streams_.size();
  return fail(Errc::kTimeout,
              peer_ +
                  (connected ? ": connected, but the receiver did not accept in " : ": no connection in ") +
                  std::to_string((connected ? kPeerDeadline : kSetupDeadline) / kSecond) + " s");
}

Result<void> Connector::advance(size_t index, Nanos now) {
  Stream& s = streams_[index];
  if (!s.socket.valid() || s.answered) return {};
  if (s.greeted) return hear_answer(s);
  int error = 0;
  const Status connected = connect_progress(s.socket.fd(), error);
  if (connected == Status(Errc::kWouldBlock)) return {};
  if (!connected.ok()) return fail(Errc::kSystem, transport::tcp::error_text(error));
  const wire::Stream hello{.index = static_cast<uint16_t>(index),
                           .count = static_cast<uint16_t>(streams_.size()),
                           .secret = invitation_.secret};
  // A receiver of an earlier version knows STREAM alone, and one that pairs nothing need not be told more.
  const auto frame =
      pairs() ? wire::encode_message(wire::StreamOffer{.stream = hello, .features = features_of(terms_)})
              : wire::encode_message(hello);
  if (!send_frame(s.socket.fd(), frame).ok())
    return fail(Errc::kReset, "connection broke before anything was said");
  s.greeted = true;
  if (++greeted_ == streams_.size()) deadline_ = now + kPeerDeadline;
  return {};
}

Result<void> Connector::hear_answer(Stream& stream) {
  const Status read = stream.answer.read(stream.socket.fd());
  if (read == Status(Errc::kWouldBlock)) return {};
  const bool ended = read == Status(Errc::kClosed) || read == Status(Errc::kReset);
  if (ended) {
    // The receiver ends those it has no room for; progress() says whether enough are left.
    stream.socket = {};
    return {};
  }
  wire::StreamAnswer answer;
  if (const Status s = read.ok() ? decode_word(stream.answer.bytes(), answer) : read; !s.ok())
    return fail(s.code(), "not an answer: " + std::string(to_string(s.code())));
  if (answer.code != Errc::kOk) {
    const char* const why =
        !pairs() && pairs_alone() ? " (it takes streams over RDMA alone, SLUICE_TRANSPORT)" : "";
    return fail(answer.code, "refused by the receiver: " + std::string(to_string(answer.code)) + why);
  }
  if (answer.version < wire::kVersionMin || answer.version > wire::kVersionMax)
    return fail(Errc::kBadVersion,
                "the receiver answers with protocol version " + std::to_string(answer.version));
  const bool fits = answer.count > 0 && answer.count <= streams_.size();
  if (!fits || (answers_to_come_ != 0 && answers_to_come_ != answer.count))
    return fail(Errc::kBadField, "the receiver takes " + std::to_string(answer.count) + " of " +
                                     std::to_string(streams_.size()) + " streams");
  answers_to_come_ = answer.count;
  stream.answered = true;
  ++answers_;
  return {};
}

GreetedStreams Connector::streams_that_were_answered() {
  GreetedStreams out{.context = std::move(context_), .sockets = {}};
  for (Stream& s : streams_) {
    if (s.answered) out.sockets.push_back(std::move(s.socket));
  }
  return out;
}

}  // namespace sluice::nccl::net
