#include "tests/support/lane_test_bed.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

namespace sluice::test {

LaneTestBed::LaneTestBed(uint32_t rank_count, uint32_t slots, uint32_t slot_bytes, bool fault_tolerant,
                         bool health, wire::SumOrder order)
    : plan{.handle = 9,
           .ranks = rank_count,
           .slots = slots,
           .slot_bytes = slot_bytes,
           .view_version = 0,
           .view_hash = 0x1234,
           .payload_crc = true,
           .fault_tolerant = fault_tolerant,
           .order = order,
           .health = health},
      view{.version = plan.view_version, .view_hash = plan.view_hash, .base_chunk = 0},
      network(std::make_unique<transport::inproc::Network>()),
      blocked_(rank_count, false) {
  const auto adopt = [this](const transport::tcp::Socket&, transport::Handler& handler,
                            const transport::EndpointOptions& options) -> Result<transport::Endpoint*> {
    if (refuse_to_adopt) return fail(Errc::kSystem, "requested by the test");
    for (uint32_t r = 0; r < plan.ranks; ++r) {
      if (&session->connection(r) == &handler) return connect(r, handler, options);
    }
    return fail(Errc::kInternal, "the handler belongs to no rank");
  };
  lane = std::make_unique<reducer::Lane>(network->make_context(), adopt, reducer::LaneOptions{.fair = &fair});
  session = std::make_unique<reducer::LaneSession>(plan, *reducer::SlotArena::map(plan));
  (void)lane->do_work(now);
  for (uint32_t r = 0; r < rank_count; ++r) {
    ranks.push_back(std::make_unique<ScriptedRank>());
    far.push_back(network->make_context());
    lane->attach(*session, r, *connect(r, session->connection(r), lane->endpoint_options(plan)));
  }
}

transport::Endpoint* LaneTestBed::connect(uint32_t rank, transport::Handler& near_handler,
                                          const transport::EndpointOptions& options) {
  auto [near_end, far_end] =
      network->connect(lane->context(), near_handler, *far[rank], *ranks[rank], options);
  ranks[rank]->endpoint = far_end;
  return near_end;
}

void LaneTestBed::reconnect(uint32_t rank) {
  retired.push_back(std::exchange(ranks[rank], std::make_unique<ScriptedRank>()));
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  (void)lane->command({.kind = reducer::LaneCommand::Kind::kAttach,
                       .session = session.get(),
                       .rank = rank,
                       .socket = {.fd = fd}});
}

LaneTestBed::~LaneTestBed() {
  lane.reset();  // its endpoints refer to the session's connections
  far.clear();
}

void LaneTestBed::settle() {
  for (int idle = 0; idle < 3;) {
    unsigned work = lane->do_work(now);
    for (uint32_t r = 0; r < plan.ranks; ++r) {
      if (!blocked_[r]) work += far[r]->poll(now, kMiB);
    }
    idle = work == 0 ? idle + 1 : 0;
  }
}

void LaneTestBed::commit(uint32_t rank) {
  (void)send(rank, wire::Commit{.incarnation = kIncarnation});
}

void LaneTestBed::commit_all() {
  for (uint32_t r = 0; r < plan.ranks; ++r) commit(r);
  settle();
}

void LaneTestBed::send_resume(uint32_t rank, uint64_t results_held) {
  (void)send(rank, wire::Resume{.incarnation = kIncarnation,
                                .version = view.version,
                                .view_hash = view.view_hash,
                                .base_chunk = view.base_chunk,
                                .results_held = results_held});
}

void LaneTestBed::resume(uint32_t rank, uint64_t results_held) {
  reconnect(rank);
  settle();
  send_resume(rank, results_held);
  settle();
}

std::vector<ScriptedRank::ReceivedFrame> LaneTestBed::results(uint32_t rank) const {
  std::vector<ScriptedRank::ReceivedFrame> out;
  std::ranges::copy_if(ranks[rank]->arrived, std::back_inserter(out),
                       [](const auto& frame) { return frame.header.type == wire::FrameType::kResult; });
  return out;
}

wire::FrameHeader LaneTestBed::header(uint64_t sequence, size_t count, wire::DType dtype, wire::Op op) const {
  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  h.session = plan.handle;
  h.view_version = view.version;
  h.view_hash = static_cast<uint32_t>(view.view_hash);
  h.sequence = sequence;
  h.slot = static_cast<uint16_t>(sequence % plan.slots);
  h.chunk = sequence;
  h.op_id = static_cast<uint32_t>(sequence);
  h.kind = wire::Kind::kAllreduce;
  h.wire_dtype = h.result_dtype = dtype;
  h.acc_dtype = wire::accumulator_of(dtype);
  h.op = op;
  h.fingerprint = wire::fingerprint(count, dtype, op, h.kind);
  return h;
}

Status LaneTestBed::contribute(uint32_t rank, uint64_t sequence, const std::vector<float>& values,
                               wire::Op op) {
  std::vector<std::byte> ext(wire::kSmallExtensionBytes);
  wire::encode_extension(wire::OpInfo{.count = values.size()}, wire::SmallExtension(ext));
  return ranks[rank]->send(header(sequence, values.size(), wire::DType::kF32, op), bytes(values), ext);
}

std::vector<float> LaneTestBed::floats(const std::vector<std::byte>& b) {
  std::vector<float> v(b.size() / sizeof(float));
  if (!b.empty()) std::memcpy(v.data(), b.data(), b.size());
  return v;
}

std::vector<std::byte> LaneTestBed::bytes(const std::vector<float>& values) {
  std::vector<std::byte> b(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(b.data(), values.data(), b.size());
  return b;
}

std::vector<reducer::LaneEvent> LaneTestBed::events() {
  std::vector<reducer::LaneEvent> all;
  for (reducer::LaneEvent e; lane->poll_event(e);) all.push_back(e);
  return all;
}

}  // namespace sluice::test
