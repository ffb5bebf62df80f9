#include "nccl_plugin/net/connector.h"

#include <algorithm>
#include <utility>

#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/net/limits.h"
#include "nccl_plugin/net/stream_socket.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/address.h"

namespace sluice::nccl::net {

Connector::Connector(const ListenHandle& listen_handle, const StreamSettings& settings, Nanos now)
    : listen_handle_(listen_handle),
      settings_(settings),
      peer_(transport::tcp::address_text(listen_handle.address)),
      deadline_(now + kSetupTimeout) {}

bool Connector::rdma_offered() const noexcept {
  return (stream_features(settings_) & listen_handle_.features & wire::kStreamRdma) != 0;
}

bool Connector::rdma_required() const noexcept {
  return ((stream_features(settings_) | listen_handle_.features) & wire::kStreamRdmaOnly) != 0;
}

bool Connector::is_abandoned(Nanos now) const noexcept {
  return now > deadline_ + kPeerTimeout;
}

Result<std::unique_ptr<Connector>> Connector::start(const ListenHandle& listen_handle,
                                                    const std::string& local_address, unsigned streams,
                                                    const StreamSettings& settings, Nanos now) {
  std::unique_ptr<Connector> c(new Connector(listen_handle, settings, now));
  if (settings.rdma_required && !c->rdma_offered())
    return add_context(c->peer_, rdma_required_error("the receiver does not offer RDMA"));
  auto context = transport::rdma::make_context();
  if (!context) return tl::unexpected(context.error());
  c->context_ = std::move(*context);
  streams = std::clamp(streams, 1u, kMaxStreams);
  c->streams_.reserve(streams);
  for (unsigned i = 0; i < streams; ++i) {
    auto socket = start_connect(listen_handle.address, local_address);
    if (!socket && socket.error().code == Errc::kExhausted && i > 0) {
      warn("connect to %s: %s: opened only %u of %u connections", c->peer_.c_str(),
           socket.error().text.c_str(), i, streams);
      break;
    }
    if (!socket) return add_context(c->peer_, socket.error());
    c->streams_.push_back({.socket = std::move(*socket), .answer = {}});
  }
  return c;
}

Result<ConnectedStreams> Connector::progress(Nanos now) {
  if (!pairings_) {
    auto answered = receive_answers(now);
    if (!answered) return answered;
    if (!rdma_offered()) {
      if (settings_.rdma) answered->transport_text = "streams over TCP: the receiver does not offer RDMA";
      return answered;
    }
    pairings_.emplace(std::move(*answered), Side::kSender, settings_.choice, rdma_required(), now);
    deadline_ = now + kPeerTimeout;
  }
  auto paired = pairings_->progress(now);
  if (!paired) return add_context(peer_, paired.error());
  return paired;
}

Result<ConnectedStreams> Connector::receive_answers(Nanos now) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (auto advanced = advance(i, now); !advanced) return add_context(peer_, advanced.error());
  }
  if (answers_ > 0 && answers_ == expected_answers_) return take_answered_streams();
  const auto open = std::ranges::count_if(streams_, [](const Stream& s) { return s.socket.valid(); });
  if (open == 0 || static_cast<size_t>(open) < expected_answers_)
    return fail(Errc::kReset, peer_ + ": receiver closed the connection during the handshake");
  if (now < deadline_) return fail(Errc::kWouldBlock, "");
  const bool connected = streams_sent_ == streams_.size();
  return fail(
      Errc::kTimeout,
      peer_ +
          (connected ? ": connected, but the receiver did not accept within " : ": cannot connect within ") +
          std::to_string((connected ? kPeerTimeout : kSetupTimeout) / kSecond) + " s");
}

Result<void> Connector::advance(size_t index, Nanos now) {
  Stream& s = streams_[index];
  if (!s.socket.valid() || s.answered) return {};
  if (s.stream_sent) return receive_answer(s);
  int error = 0;
  const Status connected = poll_connect(s.socket.fd(), error);
  if (connected == Status(Errc::kWouldBlock)) return {};
  if (!connected.ok()) return fail(Errc::kSystem, transport::tcp::error_text(error));
  const wire::Stream hello{.index = static_cast<uint16_t>(index),
                           .count = static_cast<uint16_t>(streams_.size()),
                           .secret = listen_handle_.secret};
  // A receiver of an earlier version knows only STREAM, and one without RDMA needs no features.
  const auto frame =
      rdma_offered()
          ? wire::encode_message(wire::StreamOffer{.stream = hello, .features = stream_features(settings_)})
          : wire::encode_message(hello);
  if (!send_frame(s.socket.fd(), frame).ok())
    return fail(Errc::kReset, "connection lost during the handshake");
  s.stream_sent = true;
  if (++streams_sent_ == streams_.size()) deadline_ = now + kPeerTimeout;
  return {};
}

Result<void> Connector::receive_answer(Stream& stream) {
  const Status read = stream.answer.read(stream.socket.fd());
  if (read == Status(Errc::kWouldBlock)) return {};
  const bool ended = read == Status(Errc::kClosed) || read == Status(Errc::kReset);
  if (ended) {
    // A receiver without free descriptors closes some connections. receive_answers() checks whether enough
    // are left.
    stream.socket = {};
    return {};
  }
  wire::StreamAnswer answer;
  if (const Status s = read.ok() ? decode_message(stream.answer.bytes(), answer) : read; !s.ok())
    return fail(s.code(), "invalid answer of the receiver: " + std::string(to_string(s.code())));
  if (answer.code != Errc::kOk) {
    const char* const hint = !rdma_offered() && rdma_required()
                                 ? "; the receiver requires RDMA: set SLUICE_TRANSPORT=rdma or auto here"
                                 : "";
    return fail(answer.code, "refused by the receiver: " + std::string(to_string(answer.code)) + hint);
  }
  if (answer.version < wire::kVersionMin || answer.version > wire::kVersionMax)
    return fail(Errc::kBadVersion, "receiver selected protocol version " + std::to_string(answer.version) +
                                       ", which this side does not support");
  const bool is_valid = answer.count > 0 && answer.count <= streams_.size();
  if (!is_valid || (expected_answers_ != 0 && expected_answers_ != answer.count))
    return fail(Errc::kBadField, "receiver accepts " + std::to_string(answer.count) + " of " +
                                     std::to_string(streams_.size()) + " streams, an invalid number");
  expected_answers_ = answer.count;
  stream.answered = true;
  ++answers_;
  return {};
}

ConnectedStreams Connector::take_answered_streams() {
  ConnectedStreams out{.context = std::move(context_), .sockets = {}};
  for (Stream& s : streams_) {
    if (s.answered) out.sockets.push_back(std::move(s.socket));
  }
  return out;
}

}  // namespace sluice::nccl::net
