#include "tests/support/lane_rig.h"

#include <cstring>

namespace sluice::test {

LaneRig::LaneRig(uint32_t rank_count, uint32_t slots, uint32_t slot_bytes)
    : plan{.handle = 9,
           .ranks = rank_count,
           .slots = slots,
           .slot_bytes = slot_bytes,
           .view_version = 0,
           .view_hash = 0x1234,
           .payload_crc = true},
      network(transport::inproc::make_network()),
      far(network->make_context()) {
  lane = std::make_unique<reducer::Lane>(network->make_context(), nullptr, reducer::LaneOptions{});
  session = std::make_unique<reducer::LaneSession>(plan, *reducer::SlotArena::map(plan));
  (void)lane->do_work(now);
  for (uint32_t r = 0; r < rank_count; ++r) {
    ranks.push_back(std::make_unique<ScriptedRank>());
    auto [near_end, far_end] = network->connect(lane->context(), session->link(r), *far, *ranks.back(),
                                                lane->endpoint_options(plan));
    lane->attach(*session, r, *near_end);
    ranks.back()->endpoint = far_end;
  }
}

LaneRig::~LaneRig() {
  lane.reset();  // its endpoints refer to the session's links
  far.reset();
}

void LaneRig::settle() {
  for (int idle = 0; idle < 3;) {
    unsigned work = lane->do_work(now);
    work += far->poll(now, kMiB);
    idle = work == 0 ? idle + 1 : 0;
  }
}

void LaneRig::commit_all() {
  for (const auto& rank : ranks) {
    const auto body = wire::encode_body(wire::Commit{.incarnation = kIncarnation});
    (void)rank->send(wire::control_header(wire::FrameType::kCommit, body, plan.handle), body);
  }
  settle();
}

wire::FrameHeader LaneRig::header(uint64_t sequence, size_t count, wire::DType dtype, wire::Op op) const {
  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  h.session = plan.handle;
  h.view_hash = plan.view_hash;
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

Status LaneRig::contribute(uint32_t rank, uint64_t sequence, const std::vector<float>& values, wire::Op op) {
  std::vector<std::byte> ext(wire::kSmallExtensionBytes);
  wire::encode_extension(wire::OpInfo{.count = values.size()}, wire::SmallExtension(ext));
  return ranks[rank]->send(header(sequence, values.size(), wire::DType::kF32, op), bytes(values), ext);
}

std::vector<float> LaneRig::floats(const std::vector<std::byte>& b) {
  std::vector<float> v(b.size() / sizeof(float));
  std::memcpy(v.data(), b.data(), b.size());
  return v;
}

std::vector<std::byte> LaneRig::bytes(const std::vector<float>& values) {
  std::vector<std::byte> b(values.size() * sizeof(float));
  std::memcpy(b.data(), values.data(), b.size());
  return b;
}

std::vector<reducer::LaneEvent> LaneRig::events() {
  std::vector<reducer::LaneEvent> all;
  for (reducer::LaneEvent e; lane->poll_event(e);) all.push_back(e);
  return all;
}

}  // namespace sluice::test
