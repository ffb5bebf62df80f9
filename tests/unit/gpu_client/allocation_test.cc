// Counts heap allocations of the data path. The counter covers every thread of the process, so the test is a
// separate program.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/gpu_client/scheduler_test_bed.h"

namespace {
std::atomic<uint64_t> allocations{0};
}

// Not inlined: when g++ inlines only one of new and delete, it warns of a mismatch of malloc and delete.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace sluice::engine::test {
namespace {

TEST(Allocations, AreNoneInSteadyState) {
  SchedulerTestBed t({.lanes = 3, .slots = 4});
  std::vector<std::byte> data(500'000);
  const auto round = [&](uint64_t count) {
    for (int i = 0; i < 8; ++i) t.start(data.data(), data.data(), count);
    t.settle_answering();
    for (uint32_t i = 0; i < OpTable::kCapacity; ++i) {
      if (t.ended(i)) t.table.release(i);
    }
  };
  round(data.size());
  const uint64_t frames_before = t.scheduler->counters().frames_out;
  const uint64_t before = allocations.load();
  for (int i = 0; i < 20; ++i) round(static_cast<uint64_t>(1 + i * 20'011));
  const uint64_t frames = t.scheduler->counters().frames_out - frames_before;
  EXPECT_GT(frames, 1000u);
  EXPECT_EQ(allocations.load() - before, 0u) << "in " << frames << " frames";
  const uint64_t counted = allocations.load();
  static_cast<void>(::operator new(1));
  EXPECT_EQ(allocations.load(), counted + 1) << "the counter works";
}

}  // namespace
}  // namespace sluice::engine::test
