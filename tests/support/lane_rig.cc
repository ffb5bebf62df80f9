#include "tests/support/lane_rig.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

namespace sluice::test {

LaneRig::LaneRig(uint32_t rank_count, uint32_t slots, uint32_t slot_bytes, bool survives)
    : plan{.handle = 9,
           .ranks = rank_count,
           .slots = slots,
           .slot_bytes = slot_bytes,
           .view_version = 0,
           .view_hash = 0x1234,
           .payload_crc = true,
           .survives = survives},
      view{.version = plan.view_version, .view_hash = plan.view_hash, .base_chunk = 0},
      network(transport::inproc::make_network()),
      blocked_(rank_count, false) {
  const auto adopt = [this](const transport::tcp::Socket&, transport::Handler& handler,
                            const transport::EndpointOptions& options) -> Result<transport::Endpoint*> {
    if (refuse_to_adopt) return fail(Errc::kSystem, "as the test says");
    for (uint32_t r = 0; r < plan.ranks; ++r) {
      if (&session->link(r) == &handler) return connect(r, handler, options);
    }
    return fail(Errc::kInternal, "a handler of no rank");
  };
  lane = std::make_unique<reducer::Lane>(network->make_context(), adopt, reducer::LaneOptions{});
  session = std::make_unique<reducer::LaneSession>(plan, *reducer::SlotArena::map(plan));
  (void)lane->do_work(now);
  for (uint32_t r = 0; r < rank_count; ++r) {
    ranks.push_back(std::make_unique<ScriptedRank>());
    far.push_back(network->make_context());
    lane->attach(*session, r, *connect(r, session->link(r), lane->endpoint_options(plan)));
  }
}

transport::Endpoint* LaneRig::connect(uint32_t rank, transport::Handler& near_handler,
                                      const transport::EndpointOptions& options) {
  auto [near_end, far_end] =
      network->connect(lane->context(), near_handler, *far[rank], *ranks[rank], options);
  ranks[rank]->endpoint = far_end;
  return near_end;
}

void LaneRig::connect_again(uint32_t rank) {
  retired.push_back(std::exchange(ranks[rank], std::make_unique<ScriptedRank>()));
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  (void)lane->command({.kind = reducer::LaneCommand::Kind::kAttach,
                       .session = session.get(),
                       .rank = rank,
                       .socket = {.fd = fd}});
}

LaneRig::~LaneRig() {
  lane.reset();  // its endpoints refer to the session's links
  far.clear();
}

void LaneRig::settle() {
  for (int idle = 0; idle < 3;) {
    unsigned work = lane->do_work(now);
    for (uint32_t r = 0; r < plan.ranks; ++r) {
      if (!blocked_[r]) work += far[r]->poll(now, kMiB);
    }
    idle = work == 0 ? idle + 1 : 0;
  }
}

void LaneRig::commit(uint32_t rank) {
  (void)send(rank, wire::Commit{.incarnation = kIncarnation});
}

void LaneRig::commit_all() {
  for (uint32_t r = 0; r < plan.ranks; ++r) commit(r);
  settle();
}

void LaneRig::resume(uint32_t rank, uint64_t results_held) {
  connect_again(rank);
  settle();
  (void)send(rank, wire::Resume{.incarnation = kIncarnation,
                                .version = view.version,
                                .view_hash = view.view_hash,
                                .base_chunk = view.base_chunk,
                                .results_held = results_held});
  settle();
}

std::vector<ScriptedRank::Arrived> LaneRig::results(uint32_t rank) const {
  std::vector<ScriptedRank::Arrived> out;
  std::ranges::copy_if(ranks[rank]->arrived, std::back_inserter(out),
                       [](const auto& frame) { return frame.header.type == wire::FrameType::kResult; });
  return out;
}

wire::FrameHeader LaneRig::header(uint64_t sequence, size_t count, wire::DType dtype, wire::Op op) const {
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
