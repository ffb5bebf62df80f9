#include "tests/fuzz/fuzzed_lane.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "transport/tcp/tcp_context.h"
#include "wire/messages.h"

namespace sluice::fuzz {

using reducer::LaneCommand;
using reducer::LaneEvent;

std::array<int, 2> connected_sockets(bool small_buffers) {
  std::array<int, 2> fds{};
  SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) == 0);
  const int minimum = 1;  // the kernel raises it to its minimum
  if (small_buffers) ::setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &minimum, sizeof minimum);
  return fds;
}

FuzzedLane::FuzzedLane(size_t fold_budget) {
  auto context = transport::tcp::make_context();
  SLUICE_ASSERT(context.has_value());
  transport::tcp::TcpContext* const tcp = context->get();
  const auto adopt = [tcp](transport::tcp::Socket socket, transport::Handler& handler,
                           const transport::EndpointOptions& options) {
    return tcp->adopt(std::move(socket), handler, options);
  };
  lane = std::make_unique<reducer::Lane>(
      std::move(*context), adopt,
      reducer::LaneOptions{.fold_budget = fold_budget, .frame_timeout = kFrameTimeout, .ring_capacity = 64});
}

void FuzzedLane::settle() {
  unsigned turns = 0;
  // Waits for two idle calls, because a call that finishes earlier work may skip epoll.
  for (unsigned idle = 0; idle < 2; ++turns) {
    idle = lane->do_work(now) == 0 ? idle + 1 : 0;
    SLUICE_ASSERT(turns < 10000);
  }
}

FuzzedSession::FuzzedSession(FuzzedLane& fuzzed_lane, const reducer::SessionPlan& plan, uint8_t seed,
                             bool small_buffers)
    : lane_(fuzzed_lane),
      plan_(plan),
      seed_(seed),
      small_buffers_(small_buffers),
      session_(std::make_unique<reducer::LaneSession>(plan, *reducer::SlotArena::map(plan))),
      model_(plan),
      clients_(plan.ranks) {}

void FuzzedSession::command(LaneCommand command) {
  command.session = session_.get();
  SLUICE_ASSERT(lane_.lane->command(command));
}

void FuzzedSession::settle_and_check() {
  lane_.settle();
  if (!small_buffers_) drain_all();
}

void FuzzedSession::attach(uint32_t rank) {
  const std::array<int, 2> fds = connected_sockets(small_buffers_);
  clients_[rank].socket = transport::tcp::Socket(fds[0]);
  command({.kind = LaneCommand::Kind::kAttach, .rank = rank, .socket = {.fd = fds[1]}});
  model_.attach(rank);
  settle_and_check();
}

void FuzzedSession::attach_invalid_socket(uint32_t rank) {
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // epoll refuses it
  command({.kind = LaneCommand::Kind::kAttach, .rank = rank, .socket = {.fd = file}});
  model_.attach_failed(rank);
  settle_and_check();
}

void FuzzedSession::send(uint32_t rank, std::span<const std::byte> bytes, size_t hold_back) {
  Client& client = clients_[rank];
  if (!client.socket.valid()) return;
  drain(rank);  // so that the credit equals the credit of the model
  Bytes& all = client.held_back;
  all.insert(all.end(), bytes.begin(), bytes.end());
  const size_t size = all.size() - std::min(hold_back, all.size());
  if (size == 0) return;
  const ssize_t sent = ::send(client.socket.fd(), all.data(), size, MSG_NOSIGNAL);
  SLUICE_ASSERT(sent == static_cast<ssize_t>(size) || !model_.connection(rank).open());
  model_.receive(rank, std::span(all).first(size), lane_.now);
  all.erase(all.begin(), all.begin() + static_cast<long>(size));
  settle_and_check();
}

void FuzzedSession::shutdown_send(uint32_t rank, bool unread) {
  if (!clients_[rank].socket.valid()) return;
  if (!unread) drain(rank);
  ::shutdown(clients_[rank].socket.fd(), SHUT_WR);
  model_.sending_ended(rank, unread);
  settle_and_check();
}

void FuzzedSession::close_connection(uint32_t rank) {
  clients_[rank].socket = transport::tcp::Socket();
  model_.connection_closed(rank);
  settle_and_check();
}

void FuzzedSession::rank_left(uint32_t rank) {
  command({.kind = LaneCommand::Kind::kRankLeft, .rank = rank});
  model_.rank_left(rank);
  settle_and_check();
}

void FuzzedSession::end(bool with_abort) {
  if (with_abort) {
    wire::Abort abort;
    abort.code = Errc::kPeerLost;
    abort.text = "lost";
    abort_body_ = wire::encode_body(abort);
    session_->set_end_message(abort_body_);
  }
  command({.kind = LaneCommand::Kind::kEnd});
  model_.end();
  settle_and_check();
}

void FuzzedSession::close_now() {
  session_->close_now();
  lane_.now += 200 * kMillisecond;  // the lane checks it once per tick, after the deadlines
  model_.pass_time(lane_.now, FuzzedLane::kFrameTimeout);
  model_.close_now();
  settle_and_check();
}

void FuzzedSession::time_passed() {
  model_.pass_time(lane_.now, FuzzedLane::kFrameTimeout);
  settle_and_check();
  if (model_.failure() || model_.ending()) return;
  const auto expected = model_.missing();
  const auto missing = session_->missing();
  SLUICE_ASSERT(missing.count == expected.size());
  SLUICE_ASSERT((missing.since != 0) == !expected.empty());
  for (size_t i = 0; i < std::min(expected.size(), missing.ranks.size()); ++i)
    SLUICE_ASSERT(missing.ranks[i] == expected[i]);
}

FrameParts FuzzedSession::contribution(uint32_t rank, uint64_t sequence) const {
  const uint64_t random_bits = (sequence + 1) * 0x9e3779b97f4a7c15 + seed_ * 0xbf58476d1ce4e5b9;
  FrameParts parts = contribution_frame(plan_.handle, random_bits);
  wire::FrameHeader& h = parts.header;
  h.view_version = plan_.view_version;
  h.view_hash = plan_.view_hash;
  h.slot = static_cast<uint16_t>(sequence % plan_.slots);
  h.sequence = sequence;
  h.chunk = 2 * sequence;
  h.op_id = static_cast<uint32_t>(sequence);
  const size_t most = most_elements(h.wire_dtype, plan_.slot_bytes);
  const uint64_t size = (random_bits >> 48) % 8;
  const size_t drawn = 1 + (random_bits >> 52) % (size < 3 ? 300 : 40);
  const size_t count = size == 0 ? most : std::min(most, drawn);
  parts.extensions.resize(wire::kSmallExtensionBytes);
  wire::encode_extension(wire::OpInfo{.count = count}, wire::SmallExtension(parts.extensions));
  set_elements(parts, count, random_bits, rank);
  if ((random_bits >> 20) % 4 == 0) {
    h.kind = static_cast<wire::Kind>(2 + (random_bits >> 22) % 4);
    const auto owner = static_cast<uint32_t>((random_bits >> 24) % plan_.ranks);
    parts.extensions.resize(2 * wire::kSmallExtensionBytes);
    wire::encode_extension(wire::ChunkOwner{.owner = owner, .chunk_bytes = h.length},
                           std::span(parts.extensions).last<wire::kSmallExtensionBytes>());
    if (!wire::contributes(h.kind, owner, rank)) parts.payload.clear();
  }
  if ((random_bits >> 28 ^ rank) % 2 == 0) make_sparse_if_shorter(parts);
  return parts;
}

void FuzzedSession::drain_all() {
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) drain(rank);
}

void FuzzedSession::drain(uint32_t rank) {
  Client& client = clients_[rank];
  LaneModel::Connection& connection = model_.connection(rank);
  std::array<std::byte, 16 * kKiB> buffer;
  while (client.socket.valid() && !client.end_seen) {
    const ssize_t n = ::recv(client.socket.fd(), buffer.data(), buffer.size(), 0);
    if (n < 0) break;
    if (n == 0) {
      client.end_seen = true;
      break;
    }
    client.incoming.append(std::span(buffer).first(static_cast<size_t>(n)));
    for (;;) {
      const auto step = client.incoming.next();
      if (step.kind == StreamModel::Step::Kind::kNothing) break;
      on_frame(rank, step);
    }
    lane_.settle();
  }
  if (!client.socket.valid()) return;
  // On an open connection everything has arrived.
  if (connection.open())
    SLUICE_ASSERT(connection.expected_results.empty() && !client.incoming.within_frame());
  if (connection.open()) SLUICE_ASSERT(client.end_seen == model_.ending());
  if (connection.open() && model_.ending()) SLUICE_ASSERT(client.abort_seen == !abort_body_.empty());
}

void FuzzedSession::on_frame(uint32_t rank, const StreamModel::Step& step) {
  using Kind = StreamModel::Step::Kind;
  SLUICE_ASSERT(step.kind != Kind::kViolation);
  if (step.kind != Kind::kFrame) return;
  Client& client = clients_[rank];
  LaneModel::Connection& connection = model_.connection(rank);
  SLUICE_ASSERT(!client.abort_seen);
  if (step.header.type == wire::FrameType::kAbort) {
    SLUICE_ASSERT(model_.ending() && step.payload == abort_body_);
    client.abort_seen = true;
    return;
  }
  SLUICE_ASSERT(!connection.expected_results.empty());
  const ExpectedResult& expected = connection.expected_results.front();
  SLUICE_ASSERT(step.header == expected.header);
  SLUICE_ASSERT(wire::find_result_info(step.extensions) == expected.info);
  SLUICE_ASSERT(wire::find_expanded(step.extensions) == expected.expanded);
  SLUICE_ASSERT(step.payload == expected.payload);
  connection.expected_results.pop_front();
}

void FuzzedSession::on_event(const LaneEvent& event) {
  SLUICE_ASSERT(event.session == session_.get() && !released_ && event.rank < plan_.ranks);
  Client& client = clients_[event.rank];
  switch (event.kind) {
    case LaneEvent::Kind::kClosed:
      SLUICE_ASSERT(!std::exchange(client.close_reported, true));
      SLUICE_ASSERT(std::ranges::count(model_.connection(event.rank).closed, event.code) > 0);
      break;
    case LaneEvent::Kind::kFailed:
      SLUICE_ASSERT(!std::exchange(failure_reported_, true));
      SLUICE_ASSERT(model_.failure() && model_.failure()->code == event.code &&
                    model_.failure()->rank == event.rank);
      SLUICE_ASSERT(event.text[0] != '\0' && event.text.back() == '\0');
      break;
    case LaneEvent::Kind::kReleased:
      SLUICE_ASSERT(model_.ending());
      for (const LaneModel::Connection& connection : model_.connections()) SLUICE_ASSERT(!connection.open());
      released_ = true;
      break;
    case LaneEvent::Kind::kTooManyBadFrames:  // only in fault-tolerant sessions
    case LaneEvent::Kind::kNone: SLUICE_ASSERT(false);
  }
}

void FuzzedSession::check() const {
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
    const LaneModel::Connection& connection = model_.connections()[rank];
    SLUICE_ASSERT(clients_[rank].close_reported == !connection.closed.empty() ||
                  connection.closes_after_sending);
  }
  SLUICE_ASSERT(failure_reported_ == model_.failure().has_value());
}

void FuzzedSession::finish() {
  const auto process_events = [this] {
    for (LaneEvent e; lane_.lane->poll_event(e);) on_event(e);
  };
  drain_all();
  process_events();
  if (!model_.ending()) end(true);
  drain_all();
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) close_connection(rank);
  process_events();
  check();
  SLUICE_ASSERT(released_);
}

}  // namespace sluice::fuzz
