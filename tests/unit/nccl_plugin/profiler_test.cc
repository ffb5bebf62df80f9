// Collectives of NCCL's profiler, joined with sessions.
#include "nccl_plugin/profiler/profiler.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "nccl_plugin/profiler/collectives.h"

namespace sluice::nccl::profiler {
namespace {

class RecordingObserver : public engine::CollectiveObserver {
 public:
  void on_collective_running(uint64_t number) noexcept override { running = number; }
  void on_collective_ended(const engine::CollectiveRecord& collective) noexcept override {
    ended.push_back(collective);
  }
  uint64_t running = 0;
  std::vector<engine::CollectiveRecord> ended;
};

constexpr CollectiveInfo kOffloaded{.function = "AllReduce",
                                    .data_type = "ncclBfloat16",
                                    .algorithm = "COLLNET_DIRECT",
                                    .protocol = "SIMPLE",
                                    .sequence = 7,
                                    .count = 1000,
                                    .channels = 2};
constexpr CollectiveInfo kRing{.function = "AllGather",
                               .data_type = "ncclFloat32",
                               .algorithm = "RING",
                               .protocol = "LL",
                               .sequence = 0,
                               .count = 1,
                               .channels = 1};

struct CloseCommunicator {
  void operator()(Communicator* communicator) const { close(communicator); }
};
using OpenCommunicator = std::unique_ptr<Communicator, CloseCommunicator>;

OpenCommunicator open_communicator(uint64_t id, int rank = 1) {
  return OpenCommunicator(open({.id = id, .name = "dp", .nodes = 4, .ranks = 32, .rank = rank}));
}

// Runs the kernels of a collective to their end.
void run_kernels(Handle collective, uint32_t channels) {
  std::vector<Handle> kernels;
  for (uint32_t i = 0; i < channels; ++i) kernels.push_back(start_kernel(collective, 1000 - i));
  for (const Handle kernel : kernels) {
    set_kernel_end(kernel, 5000);
    stop(kernel);
  }
}

TEST(Profiler, FollowsNothingWithoutATrace) {
  const OpenCommunicator communicator = open_communicator(1);
  EXPECT_EQ(start_collective(*communicator, kOffloaded), 0u);
  RecordingObserver observer;
  const Attachment other(2, &observer);
  const Attachment no_trace(1, nullptr);
  EXPECT_EQ(start_collective(*communicator, kOffloaded), 0u);
}

TEST(Profiler, ReportsACollectiveWhenAllItsKernelsHaveStopped) {
  RecordingObserver observer;
  const Attachment attachment(1, &observer);
  const OpenCommunicator communicator = open_communicator(1);
  const Handle collective = start_collective(*communicator, kOffloaded);
  EXPECT_EQ(observer.running, 1u);
  start_network(collective);
  const Handle first = start_kernel(collective, 2000);
  const Handle second = start_kernel(collective, 1000);
  set_kernel_end(first, 9000);
  set_kernel_end(second, 4000);
  stop(collective);
  stop(first);
  EXPECT_TRUE(observer.ended.empty());
  stop(second);
  ASSERT_EQ(observer.ended.size(), 1u);
  EXPECT_EQ(observer.running, 0u);
  const engine::CollectiveRecord& r = observer.ended[0];
  EXPECT_EQ(r.number, 1u);
  EXPECT_EQ(r.sequence, 7u);
  EXPECT_STREQ(r.function.data(), "AllReduce");
  EXPECT_STREQ(r.data_type.data(), "ncclBfloat16");
  EXPECT_STREQ(r.algorithm.data(), "COLLNET_DIRECT");
  EXPECT_STREQ(r.protocol.data(), "SIMPLE");
  EXPECT_STREQ(r.communicator.data(), "dp");
  EXPECT_EQ(r.communicator_id, 1u);
  EXPECT_EQ(r.ranks, 32);
  EXPECT_EQ(r.nodes, 4);
  EXPECT_EQ(r.rank, 1);
  EXPECT_EQ(r.count, 1000u);
  EXPECT_EQ(r.channels, 2u);
  EXPECT_GT(r.launched, 0);
  EXPECT_GE(r.network_begin, r.launched);
  EXPECT_GE(r.kernel_begin, r.network_begin);
  EXPECT_GE(r.kernel_end, r.kernel_begin);
  EXPECT_EQ(r.gpu_ns, 8000u);
}

TEST(Profiler, OperationsBelongToTheOldestOffloadedCollective) {
  const OpenCommunicator communicator = open_communicator(1);
  RecordingObserver observer;
  const Attachment attachment(1, &observer);
  const Handle ring = start_collective(*communicator, kRing);
  EXPECT_EQ(observer.running, 0u);
  const Handle second = start_collective(*communicator, kOffloaded);
  const Handle third = start_collective(*communicator, kOffloaded);
  EXPECT_EQ(observer.running, 2u);
  run_kernels(ring, 1);
  EXPECT_EQ(observer.running, 2u);
  run_kernels(second, 2);
  EXPECT_EQ(observer.running, 3u);
  run_kernels(third, 2);
  EXPECT_EQ(observer.running, 0u);
  EXPECT_EQ(observer.ended.size(), 3u);
}

TEST(Profiler, ForgetsACollectiveWithoutKernels) {
  RecordingObserver observer;
  const Attachment attachment(1, &observer);
  const OpenCommunicator communicator = open_communicator(1);
  const Handle first = start_collective(*communicator, kOffloaded);
  const Handle second = start_collective(*communicator, kOffloaded);
  EXPECT_EQ(observer.running, 1u);
  const Handle kernel = start_kernel(second, 1);
  EXPECT_EQ(observer.running, 2u);
  EXPECT_EQ(start_kernel(first, 1), 0u);
  stop(kernel);
  EXPECT_EQ(observer.running, 2u);  // its second channel has not started
}

TEST(Profiler, ForgetsTheOldestOfTooManyCollectives) {
  RecordingObserver observer;
  const Attachment attachment(1, &observer);
  const OpenCommunicator communicator = open_communicator(1);
  const Handle first = start_collective(*communicator, kOffloaded);
  for (size_t i = 0; i < Collectives::kMost; ++i) {
    EXPECT_NE(start_collective(*communicator, kOffloaded), 0u);
  }
  EXPECT_EQ(start_kernel(first, 1), 0u);
  EXPECT_EQ(observer.running, 2u);
}

TEST(Profiler, IgnoresUnknownHandles) {
  RecordingObserver observer;
  const Attachment attachment(1, &observer);
  OpenCommunicator communicator = open_communicator(1);
  const Handle collective = start_collective(*communicator, kOffloaded);
  const Handle kernel = start_kernel(collective, 1);
  for (const Handle unknown :
       {Handle{0}, ~Handle{0}, collective + 4, kernel + 4, kernel, Handle{1}, Handle{2}}) {
    start_network(unknown);
    EXPECT_EQ(start_kernel(unknown, 1), 0u);
  }
  for (const Handle unknown : {Handle{0}, ~Handle{0}, collective, collective + 4, kernel + 4, Handle{2}}) {
    set_kernel_end(unknown, 1);
    stop(unknown);
  }
  EXPECT_TRUE(observer.ended.empty());
  communicator.reset();
  stop(kernel);
  EXPECT_EQ(start_kernel(collective, 1), 0u);
  const OpenCommunicator next = open_communicator(1);  // must not take the handles of the closed one
  EXPECT_NE(start_collective(*next, kOffloaded), collective);
  EXPECT_EQ(start_kernel(collective, 1), 0u);
  EXPECT_TRUE(observer.ended.empty());
}

TEST(Profiler, SessionsFollowTheFirstRankOfTheProcess) {
  OpenCommunicator first = open_communicator(1, 0);
  const OpenCommunicator second = open_communicator(1, 1);
  RecordingObserver observer;
  const Attachment attachment(1, &observer);
  EXPECT_NE(start_collective(*first, kOffloaded), 0u);
  EXPECT_EQ(start_collective(*second, kOffloaded), 0u);
}

TEST(Profiler, AllHeadsOfACommunicatorGetItsCollectives) {
  const OpenCommunicator communicator = open_communicator(1);
  RecordingObserver first, second;
  const Attachment attachment(1, &first);
  auto closed = std::make_unique<Attachment>(1, &second);
  run_kernels(start_collective(*communicator, kOffloaded), 2);
  closed.reset();
  run_kernels(start_collective(*communicator, kOffloaded), 2);
  EXPECT_EQ(first.ended.size(), 2u);
  EXPECT_EQ(second.ended.size(), 1u);
}

TEST(Profiler, TruncatesLongTexts) {
  RecordingObserver observer;
  const Attachment attachment(1, &observer);
  const OpenCommunicator communicator = open_communicator(1);
  const std::string text(100, 'x');
  CollectiveInfo info = kOffloaded;
  info.function = text;
  run_kernels(start_collective(*communicator, info), 2);
  ASSERT_EQ(observer.ended.size(), 1u);
  EXPECT_EQ(std::string(observer.ended[0].function.data()), text.substr(0, 31));
}

}  // namespace
}  // namespace sluice::nccl::profiler
