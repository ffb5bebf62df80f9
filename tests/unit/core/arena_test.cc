#include "core/arena.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/units.h"

namespace sluice {
namespace {

TEST(Arena, IsZeroedWritableAndPageAligned) {
  Result<Arena> arena = Arena::map(kMiB + 1);
  ASSERT_TRUE(arena.has_value()) << arena.error().text;
  ASSERT_EQ(arena->size(), kMiB + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), 0u);
  EXPECT_TRUE(std::all_of(arena->data(), arena->data() + arena->size(),
                          [](std::byte b) { return b == std::byte{0}; }));
  arena->data()[0] = std::byte{1};
  arena->data()[kMiB] = std::byte{2};
  EXPECT_EQ(arena->data()[kMiB], std::byte{2});
}

TEST(Arena, HasNoMemoryForSizeZero) {
  Result<Arena> arena = Arena::map(0);
  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->data(), nullptr);
  EXPECT_EQ(arena->size(), 0u);
}

TEST(Arena, UsesNoMemoryBeforeTheFirstAccess) {
  Result<Arena> arena = Arena::map(4 * kGiB);
  ASSERT_TRUE(arena.has_value()) << arena.error().text;
  arena->data()[3 * kGiB] = std::byte{1};
}

TEST(Arena, ReportsTheSizeThatItCannotMap) {
  const size_t bytes = std::numeric_limits<size_t>::max() / 2;
  Result<Arena> arena = Arena::map(bytes);
  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().code, Errc::kMemoryLimit);
  EXPECT_NE(arena.error().text.find(std::to_string(bytes)), std::string::npos) << arena.error().text;
}

TEST(Arena, TransfersItsMappingWhenMoved) {
  Result<Arena> mapped = Arena::map(kKiB);
  ASSERT_TRUE(mapped.has_value());
  std::byte* const data = mapped->data();
  Arena moved = std::move(*mapped);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.size(), kKiB);
  EXPECT_EQ(mapped->data(), nullptr);
  EXPECT_EQ(mapped->size(), 0u);
  Arena assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data(), data);
  assigned.data()[0] = std::byte{1};
}

}  // namespace
}  // namespace sluice
