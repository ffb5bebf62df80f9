// The order of work on streams and events.
#include <atomic>
#include <cstring>
#include <latch>
#include <mutex>
#include <thread>

#include "tests/conformance/device/device_test_bed.h"

namespace sluice::pipeline::test {
namespace {

uint32_t* word_of(const PinnedMemory& memory) {
  return reinterpret_cast<uint32_t*>(memory.bytes().data());
}

class DeviceOrder : public DeviceFixture {
 protected:
  // Records an event after the current work of the stream.
  std::unique_ptr<Event> end_of(Device::Stream stream) {
    auto made = event();
    EXPECT_TRUE(device().record(*made, stream).ok()) << device().last_error();
    return made;
  }
};

TEST_P(DeviceOrder, PinnedMemoryIsZeroAndAligned) {
  const auto memory = pinned(100000);
  ASSERT_GE(memory->bytes().size(), 100000U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->bytes().data()) % kPinnedAlignment, 0U);
  for (const std::byte b : memory->bytes()) ASSERT_EQ(b, std::byte{0});
}

TEST_P(DeviceOrder, AStreamExecutesInOrder) {
  auto* const stream = test_bed().make_stream();
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) test_bed().submit(stream, [&done, i] { done.push_back(i); });
  synchronize(stream);
  ASSERT_EQ(done.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
}

TEST_P(DeviceOrder, AStreamWaitsForAnotherByAnEvent) {
  auto* const one = test_bed().make_stream();
  auto* const other = test_bed().make_stream();
  std::latch gate(1);
  std::atomic<int> step{0};
  test_bed().submit(one, [&] {
    gate.wait();
    step = 1;
  });
  const auto passed = end_of(one);
  ASSERT_TRUE(device().wait(other, *passed).ok());
  std::atomic<int> seen{-1};
  test_bed().submit(other, [&] { seen = step.load(); });
  const auto end = end_of(other);
  EXPECT_FALSE(device().is_complete(*passed));
  EXPECT_FALSE(device().is_complete(*end));
  gate.count_down();
  EXPECT_TRUE(device().synchronize(*end).ok());
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(device().is_complete(*passed));
}

TEST_P(DeviceOrder, ARecordedEventMovesToTheNewPosition) {
  auto* const one = test_bed().make_stream();
  auto* const other = test_bed().make_stream();
  std::latch gate(1);
  std::atomic<bool> passed{false}, seen{false};
  test_bed().submit(one, [&] {
    gate.wait();
    passed = true;
  });
  const auto again = end_of(one);
  ASSERT_TRUE(device().wait(device().copy_out_stream(), *again).ok());
  test_bed().submit(device().copy_out_stream(), [&] { seen = passed.load(); });
  const auto end = end_of(device().copy_out_stream());
  ASSERT_TRUE(device().record(*again, other).ok());
  if (test_bed().has_independent_streams()) {
    EXPECT_TRUE(device().synchronize(*again).ok()) << "the event still waits for its old position";
    EXPECT_FALSE(device().is_complete(*end)) << "a waiter for the old position has continued";
  }
  gate.count_down();
  EXPECT_TRUE(device().synchronize(*end).ok());
  EXPECT_TRUE(seen);
  EXPECT_TRUE(device().synchronize(*again).ok());
}

TEST_P(DeviceOrder, AHeldStreamContinuesAtTheValueOfTheWord) {
  const auto memory = pinned(4096);
  uint32_t* const word = word_of(*memory);
  std::vector<std::unique_ptr<Event>> ends;
  for (uint32_t value = 1; value <= 5; ++value) {
    ASSERT_TRUE(device().wait_value(device().copy_in_stream(), word, value).ok());
    ends.push_back(end_of(device().copy_in_stream()));
  }
  EXPECT_FALSE(device().is_complete(*ends[0]));
  device().write_value(word, 1);
  EXPECT_TRUE(device().synchronize(*ends[0]).ok());
  EXPECT_FALSE(device().is_complete(*ends[1]));
  device().write_value(word, 4);  // beyond the value of the next hold
  EXPECT_TRUE(device().synchronize(*ends[3]).ok());
  EXPECT_FALSE(device().is_complete(*ends[4]));
  device().write_value(word, 5);
  EXPECT_TRUE(device().synchronize(*ends[4]).ok());
}

TEST_P(DeviceOrder, FinishWaitsForTheStreamsOfTheDevice) {
  std::atomic<int> done{0};
  for (auto* const stream : {device().copy_out_stream(), device().copy_in_stream()}) {
    for (int i = 0; i < 50; ++i) test_bed().submit(stream, [&done] { ++done; });
  }
  device().synchronize_copy_streams();
  EXPECT_EQ(done, 100);
}

TEST_P(DeviceOrder, WordsWrapAround) {
  const auto memory = pinned(4096);
  uint32_t* const word = word_of(*memory);
  device().write_value(word, 0xfffffffe);
  ASSERT_TRUE(device().wait_value(device().copy_in_stream(), word, 0xfffffffe).ok());
  const auto there = end_of(device().copy_in_stream());
  ASSERT_TRUE(device().wait_value(device().copy_in_stream(), word, 1).ok());
  const auto behind = end_of(device().copy_in_stream());
  EXPECT_TRUE(device().synchronize(*there).ok());
  EXPECT_FALSE(device().is_complete(*behind)) << "compared as if 0xfffffffe were after 1";
  device().write_value(word, 0xffffffff);
  EXPECT_FALSE(device().is_complete(*behind));
  device().write_value(word, 2);
  EXPECT_TRUE(device().synchronize(*behind).ok());
  ASSERT_TRUE(device().wait_value(device().copy_in_stream(), word, 0xffffffff).ok());
  synchronize(device().copy_in_stream());  // 2 is three steps after it
}

TEST_P(DeviceOrder, BytesWrittenBeforeTheWordAreCopied) {
  const auto word = pinned(4096);
  const auto staging = pinned(4096);
  auto* const memory = test_bed().allocate(4096);
  const BufferRange range{.send = memory, .recv = memory, .count = 4096};
  for (uint32_t round = 1; round <= 20; ++round) {
    ASSERT_TRUE(device().wait_value(device().copy_in_stream(), word_of(*word), round).ok());
    ASSERT_TRUE(
        device()
            .scatter(device().copy_in_stream(), staging->bytes().data(), {&range, 1}, {.element_bytes = 1})
            .ok());
    const auto end = end_of(device().copy_in_stream());
    std::memset(staging->bytes().data(), static_cast<int>(round), 4096);
    device().write_value(word_of(*word), round);
    ASSERT_TRUE(device().synchronize(*end).ok());
    std::vector<std::byte> got(4096);
    test_bed().read(got, memory);
    EXPECT_EQ(got, std::vector<std::byte>(4096, static_cast<std::byte>(round)));
  }
}

// Submits operations like the pipeline, with a network that answers from another thread. With one queue this
// finishes only if all awaited work was submitted earlier.
TEST_P(DeviceOrder, OperationsFinishWithOneQueueToo) {
  constexpr uint32_t kOperations = 30;
  constexpr size_t kBytes = 20000;
  auto* const stream = test_bed().make_stream();
  const auto word = pinned(4096);
  const auto staging = pinned(kBytes);
  auto* const memory = test_bed().allocate(kBytes);
  test_bed().write(memory, std::vector<std::byte>(kBytes, std::byte{1}));
  const BufferRange range{.send = memory, .recv = memory, .count = kBytes};
  const Cast bytes{.element_bytes = 1};
  for (uint32_t i = 1; i <= kOperations; ++i) {
    const auto ready = end_of(stream);
    ASSERT_TRUE(device().wait(device().copy_out_stream(), *ready).ok());
    ASSERT_TRUE(
        device().gather(device().copy_out_stream(), {&range, 1}, staging->bytes().data(), bytes).ok());
    const auto out = end_of(device().copy_out_stream());
    ASSERT_TRUE(device().wait_value(device().copy_in_stream(), word_of(*word), i).ok());
    ASSERT_TRUE(
        device().scatter(device().copy_in_stream(), staging->bytes().data(), {&range, 1}, bytes).ok());
    const auto in = end_of(device().copy_in_stream());
    ASSERT_TRUE(device().wait(stream, *in).ok());
    std::thread network([&] {
      EXPECT_TRUE(device().synchronize(*out).ok());
      for (std::byte& b : staging->bytes()) b = static_cast<std::byte>(static_cast<int>(b) + 1);
      device().write_value(word_of(*word), i);
    });
    network.join();
  }
  synchronize(stream);
  std::vector<std::byte> got(kBytes);
  test_bed().read(got, memory);
  EXPECT_EQ(got, std::vector<std::byte>(kBytes, static_cast<std::byte>(1 + kOperations)));
}

SLUICE_OVER_ALL_DEVICES(DeviceOrder);

}  // namespace
}  // namespace sluice::pipeline::test
