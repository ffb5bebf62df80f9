#include "tests/support/allocation_counter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> count{0};
}

// noinline: if only one of the operators is inlined, g++ warns about a mismatch of malloc and delete.
[[gnu::noinline]] void* operator new(size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  count.fetch_add(1, std::memory_order_relaxed);
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

namespace sluice::test {

uint64_t allocations() noexcept {
  return count.load(std::memory_order_relaxed);
}

TEST(AllocationCounter, CountsOperatorNew) {
  const uint64_t before = allocations();
  static_cast<void>(::operator new(1));
  EXPECT_EQ(allocations(), before + 1);
}

}  // namespace sluice::test
