// What comes before what.
#include <atomic>
#include <cstring>
#include <latch>
#include <mutex>
#include <thread>

#include "tests/conformance/device/bed.h"

namespace sluice::pipeline::test {
namespace {

uint32_t* word_of(const Pinned& memory) {
  return reinterpret_cast<uint32_t*>(memory.bytes().data());
}

class DeviceOrder : public DeviceTest {
 protected:
  // An event at the end of the stream as it is now.
  std::unique_ptr<Event> end_of(Device::Stream stream) {
    auto made = event();
    EXPECT_TRUE(device().record(*made, stream).ok()) << device().last_words();
    return made;
  }
};

TEST_P(DeviceOrder, PinnedMemoryIsZeroAndAlignedToPages) {
  const auto memory = pinned(100000);
  ASSERT_GE(memory->bytes().size(), 100000U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->bytes().data()) % 4096, 0U);
  for (const std::byte b : memory->bytes()) ASSERT_EQ(b, std::byte{0});
}

TEST_P(DeviceOrder, AStreamDoesOneAfterTheOther) {
  auto* const stream = bed().make_stream();
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) bed().submit(stream, [&done, i] { done.push_back(i); });
  finish(stream);
  ASSERT_EQ(done.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
}

TEST_P(DeviceOrder, AStreamWaitsForAnotherByAnEvent) {
  auto* const one = bed().make_stream();
  auto* const other = bed().make_stream();
  std::latch gate(1);
  std::atomic<int> step{0};
  bed().submit(one, [&] {
    gate.wait();
    step = 1;
  });
  const auto passed = end_of(one);
  ASSERT_TRUE(device().wait(other, *passed).ok());
  std::atomic<int> seen{-1};
  bed().submit(other, [&] { seen = step.load(); });
  const auto end = end_of(other);
  EXPECT_FALSE(device().is_over(*passed));
  EXPECT_FALSE(device().is_over(*end));
  gate.count_down();
  EXPECT_TRUE(device().await(*end).ok());
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(device().is_over(*passed));
}

TEST_P(DeviceOrder, AnEventThatIsRecordedAgainStandsForTheNewPlace) {
  auto* const one = bed().make_stream();
  auto* const other = bed().make_stream();
  std::latch gate(1);
  std::atomic<bool> passed{false}, seen{false};
  bed().submit(one, [&] {
    gate.wait();
    passed = true;
  });
  const auto again = end_of(one);
  ASSERT_TRUE(device().wait(device().out(), *again).ok());
  bed().submit(device().out(), [&] { seen = passed.load(); });
  const auto end = end_of(device().out());
  ASSERT_TRUE(device().record(*again, other).ok());
  if (bed().has_independent_streams()) {
    EXPECT_TRUE(device().await(*again).ok()) << "it waits for the old place";
    EXPECT_FALSE(device().is_over(*end)) << "who waited for the old place has gone on";
  }
  gate.count_down();
  EXPECT_TRUE(device().await(*end).ok());
  EXPECT_TRUE(seen);
  EXPECT_TRUE(device().await(*again).ok());
}

TEST_P(DeviceOrder, AHeldStreamGoesOnWhenTheWordIsReached) {
  const auto memory = pinned(4096);
  uint32_t* const word = word_of(*memory);
  std::vector<std::unique_ptr<Event>> ends;
  for (uint32_t value = 1; value <= 5; ++value) {
    ASSERT_TRUE(device().hold(device().in(), word, value).ok());
    ends.push_back(end_of(device().in()));
  }
  EXPECT_FALSE(device().is_over(*ends[0]));
  device().open(word, 1);
  EXPECT_TRUE(device().await(*ends[0]).ok());
  EXPECT_FALSE(device().is_over(*ends[1]));
  device().open(word, 4);  // beyond what the next waits for
  EXPECT_TRUE(device().await(*ends[3]).ok());
  EXPECT_FALSE(device().is_over(*ends[4]));
  device().open(word, 5);
  EXPECT_TRUE(device().await(*ends[4]).ok());
}

TEST_P(DeviceOrder, FinishWaitsForTheStreamsOfTheDevice) {
  std::atomic<int> done{0};
  for (auto* const stream : {device().out(), device().in()}) {
    for (int i = 0; i < 50; ++i) bed().submit(stream, [&done] { ++done; });
  }
  device().finish();
  EXPECT_EQ(done, 100);
}

TEST_P(DeviceOrder, WordsGoRound) {
  const auto memory = pinned(4096);
  uint32_t* const word = word_of(*memory);
  device().open(word, 0xfffffffe);
  ASSERT_TRUE(device().hold(device().in(), word, 0xfffffffe).ok());
  const auto there = end_of(device().in());
  ASSERT_TRUE(device().hold(device().in(), word, 1).ok());
  const auto behind = end_of(device().in());
  EXPECT_TRUE(device().await(*there).ok());
  EXPECT_FALSE(device().is_over(*behind)) << "compared as if 0xfffffffe were beyond 1";
  device().open(word, 0xffffffff);
  EXPECT_FALSE(device().is_over(*behind));
  device().open(word, 2);
  EXPECT_TRUE(device().await(*behind).ok());
  ASSERT_TRUE(device().hold(device().in(), word, 0xffffffff).ok());
  finish(device().in());  // 2 is three beyond it
}

TEST_P(DeviceOrder, WhatWasWrittenBeforeTheWordIsCopied) {
  const auto word = pinned(4096);
  const auto staging = pinned(4096);
  auto* const memory = bed().allocate(4096);
  const Segment segment{.send = memory, .recv = memory, .count = 4096};
  for (uint32_t round = 1; round <= 20; ++round) {
    ASSERT_TRUE(device().hold(device().in(), word_of(*word), round).ok());
    ASSERT_TRUE(
        device().scatter(device().in(), staging->bytes().data(), {&segment, 1}, {.element_bytes = 1}).ok());
    const auto end = end_of(device().in());
    std::memset(staging->bytes().data(), static_cast<int>(round), 4096);
    device().open(word_of(*word), round);
    ASSERT_TRUE(device().await(*end).ok());
    std::vector<std::byte> got(4096);
    bed().read(got, memory);
    EXPECT_EQ(got, std::vector<std::byte>(4096, static_cast<std::byte>(round)));
  }
}

// One operation after the other as the pipeline gives them, with a network that answers from another thread.
// In one queue this ends only when all that is waited for was given before.
TEST_P(DeviceOrder, OperationsEndInOneQueueToo) {
  constexpr uint32_t kOperations = 30;
  constexpr size_t kBytes = 20000;
  auto* const stream = bed().make_stream();
  const auto word = pinned(4096);
  const auto staging = pinned(kBytes);
  auto* const memory = bed().allocate(kBytes);
  bed().write(memory, std::vector<std::byte>(kBytes, std::byte{1}));
  const Segment segment{.send = memory, .recv = memory, .count = kBytes};
  const Cast bytes{.element_bytes = 1};
  for (uint32_t i = 1; i <= kOperations; ++i) {
    const auto ready = end_of(stream);
    ASSERT_TRUE(device().wait(device().out(), *ready).ok());
    ASSERT_TRUE(device().gather(device().out(), {&segment, 1}, staging->bytes().data(), bytes).ok());
    const auto out = end_of(device().out());
    ASSERT_TRUE(device().hold(device().in(), word_of(*word), i).ok());
    ASSERT_TRUE(device().scatter(device().in(), staging->bytes().data(), {&segment, 1}, bytes).ok());
    const auto in = end_of(device().in());
    ASSERT_TRUE(device().wait(stream, *in).ok());
    std::thread network([&] {
      EXPECT_TRUE(device().await(*out).ok());
      for (std::byte& b : staging->bytes()) b = static_cast<std::byte>(static_cast<int>(b) + 1);
      device().open(word_of(*word), i);
    });
    network.join();
  }
  finish(stream);
  std::vector<std::byte> got(kBytes);
  bed().read(got, memory);
  EXPECT_EQ(got, std::vector<std::byte>(kBytes, static_cast<std::byte>(1 + kOperations)));
}

SLUICE_OVER_ALL_DEVICES(DeviceOrder);

}  // namespace
}  // namespace sluice::pipeline::test
