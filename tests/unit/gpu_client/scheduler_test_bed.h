// Class SchedulerTestBed runs a ChunkScheduler against fake reducer lanes over the inproc transport. The
// test decides when a FakeLane answers. The fake sum is the contribution with every byte XORed with
// kResultMask, so that a result differs from its contribution.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "tests/support/transport/inproc_network.h"
#include "wire/extension.h"
#include "wire/messages.h"

namespace sluice::engine::test {

inline constexpr std::byte kResultMask{0xa5};

inline std::vector<std::byte> bytes(size_t n, unsigned seed = 1) {
  std::vector<std::byte> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 9)) & 0xff);
  return v;
}

inline std::vector<std::byte> expected_result(std::vector<std::byte> v) {
  for (std::byte& b : v) b ^= kResultMask;
  return v;
}

class FakeLane final : public transport::Handler {
 public:
  FakeLane(uint32_t slots, uint32_t slot_bytes)
      : slots_(slots), slot_bytes_(slot_bytes), memory_(size_t{slots} * slot_bytes) {
    waiting.reserve(4096);
    seen.reserve(1 << 16);
  }

  // Answers the oldest waiting contribution; `change` modifies the header of the result. A sparse
  // contribution, which must be of slot_bytes, comes back as it is.
  void answer(const std::function<void(wire::FrameHeader&)>& change = {}) {
    ASSERT_FALSE(waiting.empty());
    wire::FrameHeader h = waiting.front();
    waiting.erase(waiting.begin());
    std::byte* slot = at(h.sequence);
    const bool sparse = h.encoding == wire::Encoding::kSparse;
    if (!sparse)
      for (uint32_t i = 0; i < h.length; ++i) slot[i] ^= kResultMask;
    h.type = wire::FrameType::kResult;
    h.flags = 0;
    if (change) change(h);
    constexpr size_t kOne = wire::kSmallExtensionBytes;
    std::array<std::byte, 2 * kOne> extensions;
    const std::span area(extensions);
    wire::encode_extension(info, area.first<kOne>());
    wire::encode_extension(wire::Expanded{.bytes = slot_bytes_}, area.last<kOne>());
    EXPECT_TRUE(endpoint->put(h, area.first(sparse ? 2 * kOne : kOne), {slot, h.length}, h.sequence).ok());
  }
  void abort(Errc code, const std::string& text) {
    wire::Abort a;
    a.code = code;
    a.rank = 3;
    a.text = text;
    control_ = wire::encode_body(a);
    EXPECT_TRUE(
        endpoint->put(wire::control_header(wire::FrameType::kAbort, control_, 7), {}, control_, 0).ok());
  }

  // Sends RESUME_ACK: the next contribution must be number `held`.
  void ack(uint64_t held) {
    control_ = wire::encode_body(wire::ResumeAck{.contributions_held = held});
    next_ = held;
    EXPECT_TRUE(
        endpoint->put(wire::control_header(wire::FrameType::kResumeAck, control_, 7), {}, control_, 0).ok());
  }

  transport::ReceiveTarget on_header(transport::Endpoint&, const wire::FrameHeader& h,
                                     std::span<const std::byte> ext) noexcept override {
    if (h.type == wire::FrameType::kCommit) {
      EXPECT_FALSE(committed) << "second COMMIT";
      return {.status = Errc::kOk, .payload = commit_.data()};
    }
    if (h.type == wire::FrameType::kResume || h.type == wire::FrameType::kViewCommit) {
      EXPECT_EQ(h.type == wire::FrameType::kResume, !committed);
      return {.status = Errc::kOk, .payload = commit_.data()};
    }
    EXPECT_EQ(h.type, wire::FrameType::kContribution);
    EXPECT_TRUE(committed) << "contribution before COMMIT";
    EXPECT_EQ(h.sequence, next_++);
    EXPECT_EQ(h.slot, h.sequence % slots_);
    EXPECT_LE(h.length, slot_bytes_);
    // Otherwise the error is slot_not_granted: the slot's last result has not been sent yet.
    EXPECT_LT(waiting.size(), slots_) << "more than W outstanding contributions";
    count = wire::find_op_info(ext).value_or(wire::OpInfo{}).count;
    return {.status = Errc::kOk, .payload = at(h.sequence)};
  }
  void on_frame(transport::Endpoint&, const wire::FrameHeader& h, std::span<const std::byte>,
                std::span<std::byte> payload) noexcept override {
    if (h.type == wire::FrameType::kCommit) {
      wire::Commit commit;
      EXPECT_TRUE(wire::decode_body(payload, commit).ok());
      incarnation = commit.incarnation;
      committed = true;
      return;
    }
    if (h.type == wire::FrameType::kResume) {
      EXPECT_TRUE(wire::decode_body(payload, resume).ok());
      incarnation = resume.incarnation;
      committed = true;
      return;
    }
    if (h.type == wire::FrameType::kViewCommit) {
      EXPECT_TRUE(wire::decode_body(payload, view).ok());
      EXPECT_GT(view.version, 0u);
      waiting.clear();
      next_ = 0;
      return;
    }
    last.assign(payload.begin(), payload.end());
    waiting.push_back(h);
    if (seen.size() < seen.capacity()) seen.push_back(h);
  }
  void on_sent(transport::Endpoint&, transport::Cookie, Status) noexcept override {}
  void on_closed(transport::Endpoint&, Errc reason) noexcept override {
    endpoint = nullptr;
    closed = reason;
  }

  transport::Endpoint* endpoint = nullptr;
  std::vector<wire::FrameHeader> waiting;              // contributions without an answer
  std::vector<wire::FrameHeader> seen;                 // all contributions
  std::vector<std::byte> last;                         // payload of the last contribution
  wire::Resume resume;                                 // last received
  wire::ViewCommit view;                               // last received
  wire::ResultInfo info{.last_rank = 0, .lag_us = 1};  // sent with each answer
  uint64_t count = 0;                                  // of the last OP_INFO
  uint64_t incarnation = 0;
  bool committed = false;
  Errc closed = Errc::kOk;

 private:
  [[nodiscard]] std::byte* at(uint64_t sequence) { return memory_.data() + sequence % slots_ * slot_bytes_; }

  const uint32_t slots_;
  const uint32_t slot_bytes_;
  std::vector<std::byte> memory_;
  std::array<std::byte, 64> commit_{};
  std::vector<std::byte> control_;
  uint64_t next_ = 0;
};

class SchedulerTestBed final : public ChunkScheduler::Listener {
 public:
  static constexpr uint32_t kRanks = 4;  // for StragglerStats and OperationRecorder

  struct Shape {
    uint32_t lanes = 2;
    uint32_t slots = 4;
    uint32_t slot_bytes = 16 * 1024;
    uint32_t rank = 0;
    bool payload_crc = true;
    bool keep_results = true;
    bool limit_inflight = false;
    SharedInflightLimit* shared_limit = nullptr;
    bool fault_tolerant = false;
    bool sparse = false;
    std::vector<uint32_t> placement{};      // empty: round robin
    OperationObserver* observer = nullptr;  // lives longer
  };

  explicit SchedulerTestBed(const Shape& shape)
      : table(shape.lanes, {.slot_bytes = shape.slot_bytes}, kRanks) {
    ChunkScheduler::Options o;
    o.view_hash = 0x1234abcd;
    o.slot_bytes = shape.slot_bytes;
    o.incarnation = 99;
    o.payload_crc = shape.payload_crc;
    o.keep_results = shape.keep_results;
    o.limit_inflight = shape.limit_inflight;
    o.shared_limit = shape.shared_limit;
    o.fault_tolerant = shape.fault_tolerant;
    o.rank = shape.rank;
    o.ranks = kRanks;
    o.placement = shape.placement;
    for (uint32_t i = 0; i < shape.lanes; ++i) {
      if (shape.placement.empty()) o.placement.push_back(i);
      o.lanes.push_back({.handle = 7 + i, .slots = shape.slots, .sparse = shape.sparse});
    }
    scheduler = std::move(ChunkScheduler::create(std::move(o), table, *this).value());
    if (shape.observer != nullptr) {
      recorder = std::make_unique<OperationRecorder>(
          *scheduler,
          OperationObservers{std::shared_ptr<OperationObserver>(shape.observer, [](OperationObserver*) {})},
          shape.rank, kRanks);
      for (uint32_t i = 0; i < shape.lanes; ++i) recorder->add_reducer("reducer " + std::to_string(i), 1);
      scheduler->set_recorder(recorder.get());
    }
    for (uint32_t i = 0; i < shape.lanes; ++i) connect(i, shape.slots, shape.slot_bytes);
    EXPECT_TRUE(scheduler->begin().ok());
  }

  // Connects lane connection i to a new fake lane, the last of `lanes`.
  FakeLane& connect(uint32_t i, uint32_t slots, uint32_t slot_bytes) {
    FakeLane& lane = lanes.emplace_back(slots, slot_bytes);
    auto [mine, theirs] =
        network->connect(*context, scheduler->handler(i), *far_context, lane, scheduler->endpoint_options(i));
    scheduler->bind(i, *mine);
    lane.endpoint = theirs;
    return lane;
  }

  // Opens and issues an operation and returns its index.
  uint32_t start(const void* send, void* recv, uint64_t count, wire::DType dtype = wire::DType::kU8,
                 wire::Op op = wire::Op::kSum) {
    const auto index = table.open({.send = static_cast<const std::byte*>(send),
                                   .recv = static_cast<std::byte*>(recv),
                                   .count = count,
                                   .dtype = dtype,
                                   .op = op,
                                   .issued = recorder ? monotonic_now() : 0});
    EXPECT_TRUE(index.has_value());
    scheduler->issue(*index);
    return *index;
  }
  // Polls both sides until no frame moves. The fake lanes do not answer.
  void settle() {
    unsigned done = 1;
    while (done > 0) {
      done = scheduler->put_chunks(SIZE_MAX) > 0 ? 1 : 0;
      done += context->poll(now, SIZE_MAX) + far_context->poll(now, SIZE_MAX);
    }
  }
  // The same, answering every contribution at once.
  void settle_answering() {
    for (bool more = true; more;) {
      settle();
      more = false;
      for (FakeLane& lane : lanes) {
        while (!lane.waiting.empty() && lane.endpoint != nullptr) lane.answer(), more = true;
      }
    }
  }
  [[nodiscard]] bool ended(uint32_t op) { return table[op].state.load() == OpState::kEnded; }

  void on_scheduler_ended(const SchedulerFailure& e) noexcept override {
    ++ends_reported;
    session_end = e;
  }
  void on_lane_lost(uint32_t lane, Errc reason) noexcept override {
    lost_lane = lane;
    lost_reason = reason;
  }
  void on_lane_resumed(uint32_t) noexcept override { ++resumed; }

  std::unique_ptr<transport::inproc::Network> network = std::make_unique<transport::inproc::Network>();
  OpTable table;
  std::deque<FakeLane> lanes;
  std::unique_ptr<ChunkScheduler> scheduler;
  std::unique_ptr<OperationRecorder> recorder;  // null without an observer
  std::unique_ptr<transport::Context> context = network->make_context();
  std::unique_ptr<transport::Context> far_context = network->make_context();
  Nanos now = kSecond;
  int ends_reported = 0;
  int resumed = 0;
  SchedulerFailure session_end;
  uint32_t lost_lane = kNoLane;
  Errc lost_reason = Errc::kOk;
};

// An operation of bytes, with its buffers.
class TestOperation {
 public:
  TestOperation(SchedulerTestBed& t, size_t size, bool in_place = false)
      : test_bed_(t), in_(bytes(size)), send_(in_), recv_(size), in_place_(in_place) {
    index_ = t.start(send_.data(), in_place ? send_.data() : recv_.data(), size);
  }
  [[nodiscard]] uint32_t index() const noexcept { return index_; }
  [[nodiscard]] bool has_ended() const { return test_bed_.ended(index_); }
  [[nodiscard]] Errc status() const { return test_bed_.table[index_].status; }
  // Answers everything. Then the operation must have ended with the right result.
  void expect_result() {
    test_bed_.settle_answering();
    ASSERT_TRUE(has_ended());
    EXPECT_TRUE((in_place_ ? send_ : recv_) == expected_result(in_));
  }
  void release() { test_bed_.table.release(index_); }
  void overwrite_buffers() { std::ranges::fill(send_, std::byte{0}), std::ranges::fill(recv_, std::byte{0}); }
  [[nodiscard]] std::vector<std::byte> result(size_t first, size_t size) const {
    const auto all = expected_result(in_);
    return {all.begin() + static_cast<long>(first), all.begin() + static_cast<long>(first + size)};
  }

 private:
  SchedulerTestBed& test_bed_;
  std::vector<std::byte> in_, send_, recv_;
  bool in_place_;
  uint32_t index_;
};

}  // namespace sluice::engine::test
