// The cost of a chunk over RDMA (docs/design/rdma.md): work requests, calls that post them, completions and
// copies. Runs in the guest, with SLUICE_TRANSPORT=rdma.
#include <sys/mman.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/arena.h"
#include "tests/functional/engine_test_bed.h"

namespace sluice::test {
namespace {

constexpr size_t kChunk = 64 * kKiB;
constexpr size_t kWindow = 8;  // slots of the single lane
constexpr size_t kChunks = 64;
constexpr size_t kBytes = kChunks * kChunk;

struct Costs {
  uint64_t copied = 0;
  uint64_t work_requests = 0, post_calls = 0, completions = 0;
};
Costs operator-(const Costs& a, const Costs& b) {
  return {a.copied - b.copied, a.work_requests - b.work_requests, a.post_calls - b.post_calls,
          a.completions - b.completions};
}

class RdmaInPlace : public EngineTestBed {
 protected:
  void SetUp() override {
    auto options = reducer_options();
    options.lanes = 1;
    options.peer_timeout = 20 * kSecond;
    start_reducers(1, options);
    send_ = *Arena::map(kRanks * kBytes);
    recv_ = *Arena::map(kRanks * kBytes);
  }
  std::span<float> buffer(const Arena& arena, uint32_t rank) const {
    return {reinterpret_cast<float*>(arena.data() + rank * kBytes), kBytes / sizeof(float)};
  }
  void run(bool keep, const std::function<void(uint32_t, sluice_session*)>& body) {
    const auto adjust = [&](sluice_options& o) {
      o.slot_bytes = kChunk;
      o.window_bytes = kWindow * kChunk;
      o.keep_results = keep ? 1 : 0;
      o.join_timeout_ms = 60'000;
    };
    run_session(kRanks, adjust, body);
  }
  static void register_buffer(sluice_session* session, std::span<float> bytes) {
    std::array<char, 512> error{};
    ASSERT_EQ(sluice_memory_register(session, bytes.data(), bytes.size_bytes(), error.data(), error.size()),
              SLUICE_OK)
        << error.data();
  }
  void allreduce(sluice_session* session, uint32_t rank, std::span<float> to) {
    const std::span<float> from = buffer(send_, rank);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(rank + i % 1000);
    ASSERT_EQ(sluice_allreduce(session, from.data(), to.data(), from.size(), SLUICE_F32, SLUICE_SUM),
              SLUICE_OK)
        << reason_of(session);
    for (size_t i = 0; i < to.size(); ++i)
      ASSERT_EQ(to[i], static_cast<float>(1 + 2 * (i % 1000))) << "element " << i;
  }
  static Costs costs_of(sluice_session* session) {
    sluice_stats s{};
    s.struct_size = sizeof s;
    EXPECT_EQ(sluice_session_stats(session, &s), SLUICE_OK);
    EXPECT_EQ(s.rdma_lanes, 1U);
    return {s.payload_bytes_copied, s.rdma_work_posted, s.rdma_doorbells, s.rdma_completions};
  }
  // Of all sessions.
  [[nodiscard]] Costs costs_of_reducer() const {
    const auto data = nlohmann::json::parse(reducers_[0]->status_json())["data"];
    return {data["bytes_copied"].get<uint64_t>() + data["bytes_copied_out"].get<uint64_t>(),
            data["rdma_work_requests"], data["rdma_doorbells"], data["rdma_completions"]};
  }
  static constexpr uint32_t kRanks = 2;
  Arena send_, recv_;
};

TEST_F(RdmaInPlace, RegisteredMemoryIsNotCopiedAndAChunkHasTheDocumentedCost) {
  run(false, [&](uint32_t rank, sluice_session* session) {
    register_buffer(session, buffer(send_, rank));
    register_buffer(session, buffer(recv_, rank));
    allreduce(session, rank, buffer(recv_, rank));  // no buffers are advertised yet for the first chunks
    const Costs before = costs_of(session);
    allreduce(session, rank, buffer(recv_, rank));
    allreduce(session, rank, buffer(recv_, rank));
    const Costs c = costs_of(session) - before;
    EXPECT_EQ(c.copied, 0U);
    // The write and the send of the contribution, and the receive of the result. Sometimes a segment that
    // only returns credits or advertises buffers.
    constexpr uint64_t kMany = 2 * kChunks;
    EXPECT_GE(c.work_requests, 3 * kMany);
    EXPECT_LE(c.work_requests, 3 * kMany + kMany / 4);
    EXPECT_GE(c.post_calls, 2 * kMany);
    EXPECT_LE(c.post_calls, 2 * kMany + kMany / 4);
    EXPECT_GE(c.completions, 2 * kMany);
    EXPECT_LE(c.completions, 2 * kMany + kMany / 4);
  });
  const Costs c = costs_of_reducer();
  constexpr uint64_t kServed = 3 * kChunks * kRanks;
  // Only the first window: its contributions are sent before the slots are advertised.
  EXPECT_LE(c.copied, kRanks * kWindow * kChunk * 2);
  EXPECT_LE(c.work_requests, 3 * kServed + kServed / 2);
  EXPECT_LE(c.post_calls, 2 * kServed + kServed / 2);
  EXPECT_LE(c.completions, 2 * kServed + kServed / 2);
}

TEST_F(RdmaInPlace, OneBufferForBothIsNotCopiedWithoutKeepResults) {
  run(false, [&](uint32_t rank, sluice_session* session) {
    register_buffer(session, buffer(send_, rank));
    allreduce(session, rank, buffer(send_, rank));
    const Costs before = costs_of(session);
    allreduce(session, rank, buffer(send_, rank));
    EXPECT_EQ((costs_of(session) - before).copied, 0U);
  });
}

// Results that a rank keeps for other ranks, the last window of an operation, are copied out of the ring.
TEST_F(RdmaInPlace, OnlyKeptResultsAreCopied) {
  run(true, [&](uint32_t rank, sluice_session* session) {
    register_buffer(session, buffer(send_, rank));
    register_buffer(session, buffer(recv_, rank));
    allreduce(session, rank, buffer(recv_, rank));
    const Costs before = costs_of(session);
    allreduce(session, rank, buffer(recv_, rank));
    EXPECT_EQ((costs_of(session) - before).copied, kWindow * kChunk);
  });
}

TEST_F(RdmaInPlace, UnregisteredMemoryIsCopied) {
  run(false, [&](uint32_t rank, sluice_session* session) {
    allreduce(session, rank, buffer(recv_, rank));
    EXPECT_GE(costs_of(session).copied, 2 * kBytes);
    EXPECT_LE(costs_of(session).copied, 2 * kBytes + 64) << "the body of COMMIT";
  });
}

TEST_F(RdmaInPlace, DeregisteredMemoryIsCopied) {
  run(false, [&](uint32_t rank, sluice_session* session) {
    const std::span<float> from = buffer(send_, rank), to = buffer(recv_, rank);
    register_buffer(session, from);
    register_buffer(session, to);
    register_buffer(session, to);
    allreduce(session, rank, to);
    EXPECT_EQ(sluice_memory_unregister(session, to.data(), to.size_bytes()), SLUICE_OK);
    const Costs before = costs_of(session);
    allreduce(session, rank, to);
    EXPECT_EQ((costs_of(session) - before).copied, 0U) << "it was registered twice";
    EXPECT_EQ(sluice_memory_unregister(session, to.data(), to.size_bytes()), SLUICE_OK);
    EXPECT_EQ(sluice_memory_unregister(session, to.data(), to.size_bytes()), SLUICE_INVALID_ARGUMENT);
    allreduce(session, rank, to);
    EXPECT_EQ((costs_of(session) - before).copied, kBytes);
    EXPECT_EQ(sluice_memory_unregister(session, from.data(), from.size_bytes()), SLUICE_OK);
  });
}

}  // namespace
}  // namespace sluice::test
