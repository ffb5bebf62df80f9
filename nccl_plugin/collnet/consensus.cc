#include "nccl_plugin/collnet/consensus.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "config/sizes.h"
#include "core/clock.h"
#include "nccl_plugin/collnet/rendezvous.h"
#include "nccl_plugin/host/log.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::nccl::collnet {
namespace {

using transport::tcp::Socket;

constexpr Nanos kDecisionGrace = 2 * kSecond;  // for the decision, after the coordinator's own deadline
constexpr Nanos kLogAfter = kSecond;           // until a waiting node logs that it waits

bool is_readable(const Socket& socket, Nanos deadline) {
  pollfd p{.fd = socket.fd(), .events = POLLIN, .revents = 0};
  const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
  return ::poll(&p, 1, static_cast<int>(left / kMillisecond) + 1) != 0;
}

}  // namespace

Result<Consensus> Consensus::connect(PeerSet peers, Socket listener, ConnectTimeouts timeouts) {
  Consensus c(std::move(peers));
  for (uint32_t rank = 0; rank < c.peers_.nodes.size(); ++rank) {
    if (c.peers_.nodes[rank].port == 0)
      return fail(Errc::kSystem, c.name(rank) + " could not open a port; see the log of that node");
  }
  if (!c.is_coordinator()) {
    const Nanos begin = monotonic_now(), wait_until = begin + timeouts.join;
    if (auto connected = c.connect_to_coordinator(begin + timeouts.connect, wait_until); !connected)
      return tl::unexpected(connected.error());
    if (!is_readable(c.sockets_[0], begin + kLogAfter)) {
      info("waiting up to %s for all nodes to connect to %s (SLUICE_JOIN_TIMEOUT)",
           config::duration_text(timeouts.join).c_str(), c.name(0).c_str());
    }
    if (auto decided = c.receive_decision(wait_until + kDecisionGrace); !decided)
      return tl::unexpected(decided.error());
    return c;
  }
  Rendezvous rendezvous(c.peers_, std::move(listener), timeouts);
  Result<std::string> outcome = rendezvous.run().map([] { return std::string(); });
  for (uint32_t rank = 1; rank < c.peers_.nodes.size(); ++rank) {
    Rendezvous::Node& node = rendezvous.nodes()[rank];
    c.sockets_[rank] = std::move(node.socket);
    if (outcome && node.common_text != c.peers_.common_text) {
      outcome = fail(Errc::kMismatch, "nodes have different reducer lists: " + c.name(0) + " \"" +
                                          c.peers_.common_text + "\", " + c.name(rank) + " \"" +
                                          node.common_text + "\"; " + c.peers_.remedy);
    }
  }
  c.send_decision(outcome, monotonic_now() + kDecisionGrace);
  if (!outcome) return tl::unexpected(outcome.error());
  return c;
}

Result<void> Consensus::connect_to_coordinator(Nanos deadline, Nanos wait_until) {
  const NodeHandle& coordinator = peers_.nodes[0];
  auto socket = transport::tcp::connect_to(
      coordinator.address, coordinator.port,
      {.buffer_bytes = 0, .congestion_control = {}, .local_address = peers_.local_address}, deadline);
  if (!socket) return add_context(coordinator_name(), socket.error());
  sockets_[0] = std::move(*socket);
  const Message hello{.kind = Message::Kind::kHello,
                      .code = Errc::kOk,
                      .rank = peers_.rank,
                      .text = Rendezvous::encode_hello(peers_, wait_until - monotonic_now())};
  if (const Status s = send(sockets_[0], hello, deadline); !s.ok())
    return fail(s.code(), "cannot send to " + coordinator_name() + ": " + std::string(to_string(s.code())));
  return {};
}

Result<std::string> Consensus::receive_decision(Nanos deadline) {
  Message message;
  if (const Status s = receive(sockets_[0], message, deadline); !s.ok())
    return fail(s.code(), "no decision from " + coordinator_name() + ": " + std::string(to_string(s.code())));
  if (message.kind != Message::Kind::kDecision)
    return fail(Errc::kUnexpectedMessage, coordinator_name() + ", sent another message than a decision");
  if (message.code != Errc::kOk) return fail(message.code, message.text);
  return std::move(message.text);
}

Result<std::string> Consensus::decide(const Result<void>& vote, Nanos deadline,
                                      const std::string& announcement) {
  if (is_coordinator()) {
    if (!vote) return coordinate_round(add_context(name(0), vote.error()), deadline);
    return coordinate_round(announcement, deadline);
  }
  Message message{.kind = Message::Kind::kVote, .code = Errc::kOk, .rank = peers_.rank, .text = {}};
  if (!vote) {
    message.code = vote.error().code;
    message.text = name(peers_.rank) + ": " + vote.error().text;
  }
  if (const Status s = send(sockets_[0], message, deadline); !s.ok() && s.code() != Errc::kReset)
    return fail(s.code(), "cannot send to " + coordinator_name() + ": " + std::string(to_string(s.code())));
  return receive_decision(deadline + kDecisionGrace);
}

Result<std::string> Consensus::coordinate_round(Result<std::string> outcome, Nanos deadline) {
  for (uint32_t rank = 1; rank < sockets_.size(); ++rank) {
    Message vote;
    const Status s = receive(sockets_[rank], vote, deadline);
    if (!outcome) continue;  // the error of the lowest rank is reported; the other votes are only read
    if (!s.ok() || vote.kind != Message::Kind::kVote || vote.rank != rank) {
      outcome = fail(s.ok() ? Errc::kUnexpectedMessage : s.code(),
                     name(rank) + " sent no vote: " + std::string(to_string(s.code())));
    } else if (vote.code != Errc::kOk) {
      outcome = fail(vote.code, vote.text);
    }
  }
  send_decision(outcome, monotonic_now() + kDecisionGrace);
  return outcome;
}

void Consensus::send_decision(const Result<std::string>& outcome, Nanos deadline) noexcept {
  const Message decision{.kind = Message::Kind::kDecision,
                         .code = outcome ? Errc::kOk : outcome.error().code,
                         .rank = 0,
                         .text = outcome ? *outcome : outcome.error().text};
  for (const Socket& socket : sockets_) {
    // A node that does not get the decision fails by itself.
    if (socket.valid()) (void)send(socket, decision, deadline);
  }
}

void Consensus::finish(Nanos deadline) noexcept {
  try {
    if (!is_coordinator()) {
      (void)send(sockets_[0],
                 {.kind = Message::Kind::kConfirmation, .code = Errc::kOk, .rank = peers_.rank, .text = {}},
                 deadline);
      return;
    }
    for (const Socket& socket : sockets_) {
      Message confirmation;
      if (socket.valid()) (void)receive(socket, confirmation, deadline);
    }
  } catch (...) {  // out of memory: the decision is sent already
  }
}

Status Consensus::send(const Socket& to, const Message& message, Nanos deadline) noexcept {
  std::array<std::byte, Rendezvous::kHeaderBytes + Rendezvous::kMaxTextBytes> bytes;
  const size_t text = std::min(message.text.size(), Rendezvous::kMaxTextBytes);
  Rendezvous::encode_header(std::span(bytes).first<Rendezvous::kHeaderBytes>(),
                            {.kind = static_cast<uint8_t>(message.kind),
                             .code = static_cast<uint16_t>(message.code),
                             .rank = message.rank,
                             .text_bytes = static_cast<uint32_t>(text)});
  std::memcpy(bytes.data() + Rendezvous::kHeaderBytes, message.text.data(), text);
  const auto used = std::span(bytes).first(Rendezvous::kHeaderBytes + text);
  return transport::tcp::write_all(to, used, deadline);
}

Status Consensus::receive(const Socket& from, Message& message, Nanos deadline) {
  if (!from.valid()) return Errc::kClosed;
  std::array<std::byte, Rendezvous::kHeaderBytes> bytes;
  if (const Status s = transport::tcp::read_exact(from, bytes, deadline); !s.ok()) return s;
  Rendezvous::Header header;
  if (!Rendezvous::decode_header(bytes, header)) return Errc::kBadField;
  message.text.resize(header.text_bytes);
  message.kind = static_cast<Message::Kind>(header.kind);
  message.code = is_known(static_cast<Errc>(header.code)) ? static_cast<Errc>(header.code) : Errc::kAborted;
  message.rank = header.rank;
  return transport::tcp::read_exact(from, std::as_writable_bytes(std::span(message.text)), deadline);
}

}  // namespace sluice::nccl::collnet
