// Counts the heap allocations of the network in steady state. The counter sees all threads of the process, so
// this test is a program of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/nccl_plugin/net_test_bed.h"

namespace {
std::atomic<uint64_t> allocations{0};
}

// noinline: if only one of the operators is inlined, g++ warns about a mismatch of malloc and delete.
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

namespace sluice::nccl::test {
namespace {

TEST(NetAllocations, NoneInSteadyState) {
  NetPair pair;
  constexpr size_t kBytes = 3 * kMiB;
  const auto out = pattern(kBytes, 1);
  std::array<std::vector<std::byte>, 8> in;
  for (auto& buffer : in) buffer.resize(kBytes);
  const auto round = [&](size_t bytes) {
    std::array<Request*, 8> sends{};
    std::array<Request*, 8> receives{};
    std::array<Outcome, 8> sent;
    std::array<Outcome, 8> received;
    bool posted = true;
    for (size_t i = 0; i < in.size(); ++i) {
      posted = posted && net::isend(*pair.send, out.data(), bytes, 0, &sends[i]).ok() && sends[i] != nullptr;
      posted = posted && net::irecv(*pair.recv, in[i].data(), bytes, 0, &receives[i]).ok() &&
               receives[i] != nullptr;
    }
    return posted && poll_until([&] {
             bool all = true;
             for (size_t i = 0; i < in.size(); ++i) {
               update(sends[i], sent[i]);
               update(receives[i], received[i]);
               all = all && sent[i].done && received[i].done;
             }
             return all;
           });
  };
  ASSERT_TRUE(round(kBytes));
  const uint64_t before = allocations.load();
  for (const size_t bytes : {size_t{0}, size_t{1}, 64 * kKiB, 700'001ul, kBytes}) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(round(bytes));
  }
  EXPECT_EQ(allocations.load() - before, 0u);
  const uint64_t counted = allocations.load();
  static_cast<void>(::operator new(1));
  EXPECT_EQ(allocations.load(), counted + 1) << "the counter works";
}

}  // namespace
}  // namespace sluice::nccl::test
