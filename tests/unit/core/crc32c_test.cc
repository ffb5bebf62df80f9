#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

#include "tests/support/crc32c_model.h"

namespace sluice {
namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937_64 random(20);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// The implementations that this CPU can run. RecordsWhichImplementationsThisCpuCanRun records the missing
// ones.
std::vector<Crc32cTarget> runnable_targets() {
  std::vector<Crc32cTarget> targets;
  for (const Crc32cTarget& target : crc32c_targets()) {
    if (target.function != nullptr) targets.push_back(target);
  }
  return targets;
}

TEST(Crc32c, RecordsWhichImplementationsThisCpuCanRun) {
  ASSERT_FALSE(crc32c_targets().empty());
  EXPECT_EQ(std::string_view(crc32c_targets().front().name), "table");
  EXPECT_NE(crc32c_targets().front().function, nullptr);
  for (const Crc32cTarget& target : crc32c_targets()) {
    RecordProperty(target.name, target.function != nullptr ? "tested" : "not on this cpu");
  }
}

TEST(Crc32c, SelectsTheFastestImplementationOfThisCpu) {
  EXPECT_EQ(std::string_view(crc32c_chosen().name), runnable_targets().back().name);
  EXPECT_NE(crc32c_chosen().function, nullptr);
}

TEST(Crc32c, HasTheCheckValue) {
  const std::string_view check = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(check))), 0xE3069283u);
}

// RFC 3720 appendix B.4 lists the values as bytes in wire order: 0x8A9136AA is aa 36 91 8a there.
TEST(Crc32c, AgreesWithTheVectorsOfRfc3720) {
  std::vector<std::byte> zeros(32, std::byte{0});
  std::vector<std::byte> ones(32, std::byte{0xFF});
  std::vector<std::byte> ascending;
  std::vector<std::byte> descending;
  for (int i = 0; i < 32; ++i) {
    ascending.push_back(static_cast<std::byte>(i));
    descending.push_back(static_cast<std::byte>(31 - i));
  }
  for (const Crc32cTarget& target : runnable_targets()) {
    SCOPED_TRACE(target.name);
    EXPECT_EQ(target.function(zeros.data(), zeros.size(), 0), 0x8A9136AAu);
    EXPECT_EQ(target.function(ones.data(), ones.size(), 0), 0x62A8AB43u);
    EXPECT_EQ(target.function(ascending.data(), ascending.size(), 0), 0x46DD794Eu);
    EXPECT_EQ(target.function(descending.data(), descending.size(), 0), 0x113FDB5Cu);
  }
}

TEST(Crc32c, DoesNotChangeTheCrcForEmptyInput) {
  EXPECT_EQ(crc32c({}), 0u);
  for (const Crc32cTarget& target : runnable_targets())
    EXPECT_EQ(target.function(nullptr, 0, 0x12345678), 0x12345678u);
}

TEST(Crc32c, AgreesWithTheModelAtEverySmallSizeAndOffset) {
  constexpr size_t kLargest = 1100;
  const std::vector<std::byte> bytes = random_bytes(kLargest + 64);
  for (size_t offset = 0; offset < 64; ++offset) {
    uint32_t expected = test::crc32c_model({});
    for (size_t size = 0; size <= kLargest; ++size) {
      for (const Crc32cTarget& target : runnable_targets()) {
        ASSERT_EQ(target.function(bytes.data() + offset, size, 0), expected)
            << target.name << ", offset " << offset << ", size " << size;
      }
      expected = test::crc32c_model({bytes.data() + offset + size, 1}, expected);
    }
  }
}

TEST(Crc32c, AgreesWithTheModelAroundGroupSizes) {
  const std::vector<std::byte> bytes = random_bytes(20000);
  for (const size_t around : {size_t{1536}, size_t{3 * 2048}, size_t{3 * 2048 + 3 * 256}, size_t{16384}}) {
    for (size_t size = around - 70; size <= around + 70; ++size) {
      const uint32_t expected = test::crc32c_model({bytes.data() + 1, size}, 0xDEADBEEF);
      for (const Crc32cTarget& target : runnable_targets()) {
        ASSERT_EQ(target.function(bytes.data() + 1, size, 0xDEADBEEF), expected)
            << target.name << ", size " << size;
      }
    }
  }
}

TEST(Crc32c, ContinuesAPreviousCrc) {
  const std::vector<std::byte> bytes = random_bytes(5000);
  const uint32_t whole = test::crc32c_model(bytes);
  std::mt19937_64 random(3);
  for (const Crc32cTarget& target : runnable_targets()) {
    for (int round = 0; round < 200; ++round) {
      const size_t cut = random() % (bytes.size() + 1);
      const uint32_t first = target.function(bytes.data(), cut, 0);
      ASSERT_EQ(target.function(bytes.data() + cut, bytes.size() - cut, first), whole)
          << target.name << ", cut at " << cut;
    }
  }
  EXPECT_EQ(crc32c(std::span(bytes).subspan(700), crc32c(std::span(bytes).first(700))), whole);
}

}  // namespace
}  // namespace sluice
