#include "tests/fuzz/lane_bed.h"

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

LaneBed::LaneBed(size_t fold_budget) {
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

void LaneBed::settle() {
  unsigned turns = 0;
  // Twice, since a turn that ends what the one before has begun need not ask epoll.
  for (unsigned idle = 0; idle < 2; ++turns) {
    idle = lane->do_work(now) == 0 ? idle + 1 : 0;
    SLUICE_ASSERT(turns < 10000);
  }
}

BedSession::BedSession(LaneBed& bed, const reducer::SessionPlan& plan, uint8_t seed, bool small_buffers)
    : bed_(bed),
      plan_(plan),
      seed_(seed),
      small_buffers_(small_buffers),
      session_(std::make_unique<reducer::LaneSession>(plan, *reducer::SlotArena::map(plan))),
      model_(plan),
      clients_(plan.ranks) {}

void BedSession::command(LaneCommand command) {
  command.session = session_.get();
  SLUICE_ASSERT(bed_.lane->command(command));
}

void BedSession::settle_and_check() {
  bed_.settle();
  if (!small_buffers_) drain_all();
}

void BedSession::attach(uint32_t rank) {
  std::array<int, 2> fds{};
  SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) == 0);
  clients_[rank].socket = transport::tcp::Socket(fds[0]);
  if (small_buffers_) {
    const int least = 1;  // the kernel takes its own minimum
    ::setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  }
  command({.kind = LaneCommand::Kind::kAttach, .rank = rank, .socket = {.fd = fds[1]}});
  model_.attach(rank);
  settle_and_check();
}

void BedSession::fail_to_attach(uint32_t rank) {
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // epoll refuses it
  command({.kind = LaneCommand::Kind::kAttach, .rank = rank, .socket = {.fd = file}});
  model_.never_attached(rank);
  settle_and_check();
}

void BedSession::send(uint32_t rank, std::span<const std::byte> bytes, size_t hold_back) {
  Client& client = clients_[rank];
  if (!client.socket.valid()) return;
  drain(rank);  // so that the credit is what the model says
  Bytes& all = client.held_back;
  all.insert(all.end(), bytes.begin(), bytes.end());
  const size_t size = all.size() - std::min(hold_back, all.size());
  if (size == 0) return;
  const ssize_t sent = ::send(client.socket.fd(), all.data(), size, MSG_NOSIGNAL);
  SLUICE_ASSERT(sent == static_cast<ssize_t>(size) || !model_.link(rank).open());
  model_.receive(rank, std::span(all).first(size), bed_.now);
  all.erase(all.begin(), all.begin() + static_cast<long>(size));
  settle_and_check();
}

void BedSession::end_sending(uint32_t rank, bool unread) {
  if (!clients_[rank].socket.valid()) return;
  if (!unread) drain(rank);
  ::shutdown(clients_[rank].socket.fd(), SHUT_WR);
  model_.ended(rank, unread);
  settle_and_check();
}

void BedSession::vanish(uint32_t rank) {
  clients_[rank].socket = transport::tcp::Socket();
  model_.vanished(rank);
  settle_and_check();
}

void BedSession::rank_left(uint32_t rank) {
  command({.kind = LaneCommand::Kind::kRankLeft, .rank = rank});
  model_.rank_left(rank);
  settle_and_check();
}

void BedSession::end(bool with_abort) {
  if (with_abort) {
    wire::Abort abort;
    abort.code = Errc::kPeerLost;
    abort.text = "lost";
    abort_body_ = wire::encode_body(abort);
    session_->set_ending(abort_body_);
  }
  command({.kind = LaneCommand::Kind::kEnd});
  model_.end();
  settle_and_check();
}

void BedSession::close_now() {
  session_->close_now();
  bed_.now += 200 * kMillisecond;  // the lane looks at it once a tick, after the deadlines
  model_.pass_time(bed_.now, LaneBed::kFrameTimeout);
  model_.close_now();
  settle_and_check();
}

void BedSession::time_passed() {
  model_.pass_time(bed_.now, LaneBed::kFrameTimeout);
  settle_and_check();
  if (model_.failure() || model_.ending()) return;
  const auto expected = model_.missing();
  const auto missing = session_->missing();
  SLUICE_ASSERT(missing.count == expected.size());
  SLUICE_ASSERT((missing.since != 0) == !expected.empty());
  for (size_t i = 0; i < std::min(expected.size(), missing.ranks.size()); ++i)
    SLUICE_ASSERT(missing.ranks[i] == expected[i]);
}

FrameParts BedSession::contribution(uint32_t rank, uint64_t sequence) const {
  const uint64_t draw = (sequence + 1) * 0x9e3779b97f4a7c15 + seed_ * 0xbf58476d1ce4e5b9;
  FrameParts parts;
  wire::FrameHeader& h = parts.header;
  h.type = wire::FrameType::kContribution;
  h.flags = wire::kFlagPayloadCrc;
  h.view_version = plan_.view_version;
  h.session = plan_.handle;
  h.view_hash = plan_.view_hash;
  h.slot = static_cast<uint16_t>(sequence % plan_.slots);
  h.kind = wire::Kind::kAllreduce;
  h.sequence = sequence;
  h.chunk = 2 * sequence;
  h.op_id = static_cast<uint32_t>(sequence);
  h.wire_dtype = h.result_dtype = static_cast<wire::DType>((draw >> 32) % wire::kDTypeCount);
  h.acc_dtype = wire::accumulator_of(h.wire_dtype);
  h.op = static_cast<wire::Op>((draw >> 40) % wire::kOpCount);
  const size_t element = wire::size_of(h.wire_dtype);
  const size_t most = plan_.slot_bytes / (element == 1 && h.acc_dtype == wire::DType::kF32 ? 2 : element);
  const size_t count = (draw >> 48) % 8 == 0 ? most : 1 + (draw >> 52) % 40;
  h.fingerprint = wire::fingerprint(count, h.wire_dtype, h.op, h.kind);
  parts.extensions.resize(wire::kSmallExtensionBytes);
  wire::encode_extension(wire::OpInfo{.count = count}, wire::SmallExtension(parts.extensions));
  parts.payload.resize(count * element);
  uint64_t state = draw ^ rank;
  for (std::byte& b : parts.payload) {
    state = state * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(state >> 56);
  }
  return parts;
}

FrameParts BedSession::commit(uint64_t incarnation) const {
  FrameParts parts;
  parts.header.type = wire::FrameType::kCommit;
  parts.header.flags = wire::kFlagPayloadCrc;
  parts.header.session = plan_.handle;
  parts.payload = wire::encode_body(wire::Commit{.incarnation = incarnation});
  return parts;
}

void BedSession::drain_all() {
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) drain(rank);
}

void BedSession::drain(uint32_t rank) {
  Client& client = clients_[rank];
  LaneModel::Link& link = model_.link(rank);
  std::array<std::byte, 16 * kKiB> piece;
  while (client.socket.valid() && !client.end_seen) {
    const ssize_t n = ::recv(client.socket.fd(), piece.data(), piece.size(), 0);
    if (n < 0) break;
    if (n == 0) {
      client.end_seen = true;
      break;
    }
    client.incoming.append(std::span(piece).first(static_cast<size_t>(n)));
    for (;;) {
      const auto step = client.incoming.next();
      if (step.kind == StreamModel::Step::Kind::kNothing) break;
      arrived(rank, step);
    }
    bed_.settle();
  }
  if (!client.socket.valid()) return;
  // Where nothing has gone wrong everything has come.
  if (link.open()) SLUICE_ASSERT(link.to_arrive.empty() && !client.incoming.within_frame());
  if (link.open()) SLUICE_ASSERT(client.end_seen == model_.ending());
  if (link.open() && model_.ending()) SLUICE_ASSERT(client.abort_seen == !abort_body_.empty());
}

void BedSession::arrived(uint32_t rank, const StreamModel::Step& step) {
  using Kind = StreamModel::Step::Kind;
  SLUICE_ASSERT(step.kind != Kind::kBreach);
  if (step.kind != Kind::kFrame) return;
  Client& client = clients_[rank];
  LaneModel::Link& link = model_.link(rank);
  SLUICE_ASSERT(!client.abort_seen);
  if (step.header.type == wire::FrameType::kAbort) {
    SLUICE_ASSERT(model_.ending() && step.payload == abort_body_);
    client.abort_seen = true;
    return;
  }
  SLUICE_ASSERT(!link.to_arrive.empty());
  const ExpectedResult& expected = link.to_arrive.front();
  SLUICE_ASSERT(step.header == expected.header);
  SLUICE_ASSERT(wire::find_result_info(step.extensions) == expected.info);
  SLUICE_ASSERT(step.payload == expected.payload);
  link.to_arrive.pop_front();
}

void BedSession::take_event(const LaneEvent& event) {
  SLUICE_ASSERT(event.session == session_.get() && !released_ && event.rank < plan_.ranks);
  Client& client = clients_[event.rank];
  switch (event.kind) {
    case LaneEvent::Kind::kClosed:
      SLUICE_ASSERT(!std::exchange(client.close_reported, true));
      SLUICE_ASSERT(std::ranges::count(model_.link(event.rank).closed, event.code) > 0);
      break;
    case LaneEvent::Kind::kFailed:
      SLUICE_ASSERT(!std::exchange(failure_reported_, true));
      SLUICE_ASSERT(model_.failure() && model_.failure()->code == event.code &&
                    model_.failure()->rank == event.rank);
      SLUICE_ASSERT(event.text[0] != '\0' && event.text.back() == '\0');
      break;
    case LaneEvent::Kind::kReleased:
      SLUICE_ASSERT(model_.ending());
      for (const LaneModel::Link& link : model_.links()) SLUICE_ASSERT(!link.open());
      released_ = true;
      break;
    case LaneEvent::Kind::kUnfit:  // of sessions that survive losses
    case LaneEvent::Kind::kNone: SLUICE_ASSERT(false);
  }
}

void BedSession::check() const {
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
    const LaneModel::Link& link = model_.links()[rank];
    SLUICE_ASSERT(clients_[rank].close_reported == !link.closed.empty() || link.closes_late);
  }
  SLUICE_ASSERT(failure_reported_ == model_.failure().has_value());
}

void BedSession::finish() {
  const auto take_events = [this] {
    for (LaneEvent e; bed_.lane->poll_event(e);) take_event(e);
  };
  drain_all();
  take_events();
  if (!model_.ending()) end(true);
  drain_all();
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) vanish(rank);
  take_events();
  check();
  SLUICE_ASSERT(released_);
}

}  // namespace sluice::fuzz
