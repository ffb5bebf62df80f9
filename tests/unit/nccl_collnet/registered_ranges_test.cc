#include "nccl_plugin/collnet/registered_ranges.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice::nccl::collnet {
namespace {

std::array<std::byte, 4096> memory;

TEST(RegisteredRanges, CountsRegistrationsAndReturnsTheRangeOnItsFirstRemoval) {
  RegisteredRanges r;
  const RegisteredRanges::Range range{.data = memory.data(), .bytes = 1024};
  void* const handle = r.add(range).handle;
  EXPECT_EQ(r.add(range).handle, handle);
  EXPECT_EQ(r.add(range).handle, handle);
  EXPECT_EQ(r.size(), 1U);
  const auto first = r.remove(handle);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->bytes, 1024U);
  EXPECT_FALSE(r.remove(handle)) << "NCCL has freed the memory by now";
  EXPECT_FALSE(r.remove(handle));
  EXPECT_EQ(r.size(), 0U);
}

TEST(RegisteredRanges, SeparatesAReleasedRangeFromANewRegistration) {
  RegisteredRanges r;
  const RegisteredRanges::Range range{.data = memory.data(), .bytes = 1024};
  void* const old = r.add(range).handle;
  (void)r.add(range).handle;
  EXPECT_TRUE(r.remove(old));
  void* const fresh = r.add(range).handle;
  EXPECT_NE(fresh, old);
  EXPECT_TRUE(r.remove(fresh));
  EXPECT_FALSE(r.remove(old));
}

TEST(RegisteredRanges, IgnoresUnknownHandles) {
  RegisteredRanges r;
  EXPECT_FALSE(r.remove(nullptr));
  EXPECT_FALSE(r.remove(&r));
}

TEST(RegisteredRanges, DetectOverlaps) {
  const RegisteredRanges::Range range{.data = memory.data() + 1024, .bytes = 1024};
  EXPECT_TRUE(range.overlaps(memory.data(), 1025));
  EXPECT_FALSE(range.overlaps(memory.data(), 1024));
  EXPECT_TRUE(range.overlaps(memory.data() + 2047, 1));
  EXPECT_FALSE(range.overlaps(memory.data() + 2048, 1));
}

}  // namespace
}  // namespace sluice::nccl::collnet
