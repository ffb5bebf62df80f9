#include "wire/extension.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/bytes.h"
#include "tests/support/hex_file.h"
#include "wire/frame.h"

namespace sluice::wire {
namespace {

using Area = std::vector<std::byte>;

// Appends an arbitrary extension with `body` bytes and its padding.
void append(Area& area, uint16_t type, size_t body) {
  const size_t at = area.size();
  area.resize(at + 8 + (body + 7) / 8 * 8);
  store_le(area.data() + at, type);
  store_le(area.data() + at + 2, static_cast<uint16_t>(body));
  for (size_t i = 0; i < body; ++i) area[at + 8 + i] = std::byte{0x55};
}

template <typename Info>
void append(Area& area, const Info& info) {
  const size_t at = area.size();
  area.resize(at + kSmallExtensionBytes);
  encode_extension(info, std::span(area).subspan(at).template first<kSmallExtensionBytes>());
}

Area golden_extensions(const char* file) {
  const Area frame = test::read_hex_file(std::string(SLUICE_VECTORS) + "/" + file);
  return {frame.begin() + kHeaderBytes, frame.begin() + kHeaderBytes + kSmallExtensionBytes};
}

TEST(Extension, EncodesTheGoldenVectors) {
  Area result;
  append(result, ResultInfo{.last_rank = 7, .lag_us = 1000});
  EXPECT_EQ(result, golden_extensions("result.hex"));
  Area op;
  append(op, OpInfo{.count = 0x0102030405060708});
  EXPECT_EQ(op, golden_extensions("contribution.hex"));
}

TEST(Extension, FindsEncodedExtensionsAmongOthers) {
  Area area;
  append(area, static_cast<uint16_t>(ExtensionType::kTraceId), 8);
  append(area, OpInfo{.count = 12});
  append(area, ResultInfo{.last_rank = 1, .lag_us = 0xffffffff});
  ASSERT_TRUE(check_extensions(area).ok());
  EXPECT_EQ(find_op_info(area), OpInfo{.count = 12});
  EXPECT_EQ(find_result_info(area), (ResultInfo{.last_rank = 1, .lag_us = 0xffffffff}));
}

TEST(Extension, CarriesFindings) {
  for (const auto kind : {FindingKind::kNonFinite, FindingKind::kOutlier, FindingKind::kZeros}) {
    Area area;
    append(area, ResultInfo{.last_rank = 1, .lag_us = 2});
    append(area, Finding{.kind = kind, .rank = 0x0102, .value = 0x03040506});
    ASSERT_TRUE(check_extensions(area).ok());
    EXPECT_EQ(find_finding(area), (Finding{.kind = kind, .rank = 0x0102, .value = 0x03040506}));
  }
  Area area;
  append(area, Finding{.kind = FindingKind::kZeros, .rank = 0x0102, .value = 0x03040506});
  const Area expected = {std::byte{8}, std::byte{0}, std::byte{8}, std::byte{0}, std::byte{0}, std::byte{0},
                         std::byte{0}, std::byte{0}, std::byte{2}, std::byte{1}, std::byte{3}, std::byte{0},
                         std::byte{6}, std::byte{5}, std::byte{4}, std::byte{3}};
  EXPECT_EQ(area, expected);
}

TEST(Extension, IgnoresFindingsOfUnknownKinds) {
  for (const uint8_t kind : {uint8_t{0}, uint8_t{4}, uint8_t{255}}) {
    Area area;
    append(area, Finding{.rank = 3});
    area[10] = std::byte{kind};
    EXPECT_TRUE(check_extensions(area).ok());
    EXPECT_EQ(find_finding(area), std::nullopt) << int{kind};
  }
  EXPECT_EQ(find_finding({}), std::nullopt);
}

TEST(Extension, CarriesWhatCallersCall) {
  const Caller caller{
      .op_id = 0x01020304, .root = 0x0506, .dtype = DType::kBf16, .kind = Kind::kBroadcast, .op = Op::kAvg};
  Area area;
  append(area, OpInfo{.count = 12});
  append(area, caller);
  ASSERT_TRUE(check_extensions(area).ok());
  EXPECT_EQ(find_caller(area), caller);
  EXPECT_EQ(find_op_info(area), OpInfo{.count = 12});
  const Area body(area.end() - 8, area.end());
  EXPECT_EQ(body, (Area{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}, std::byte{6}, std::byte{5},
                        std::byte{9}, std::byte{0x45}}));
}

TEST(Extension, IgnoresCallersOfUnknownOperations) {
  for (const auto& [at, value] : {std::pair{14, 14}, {15, 0x06}, {15, 0x51}}) {
    Area area;
    append(area, Caller{.kind = Kind::kAllreduce});
    EXPECT_NE(find_caller(area), std::nullopt);
    area[at] = static_cast<std::byte>(value);
    EXPECT_TRUE(check_extensions(area).ok());
    EXPECT_EQ(find_caller(area), std::nullopt) << at;
  }
}

TEST(Extension, FindsNothingInAnEmptyArea) {
  EXPECT_TRUE(check_extensions({}).ok());
  EXPECT_EQ(find_op_info({}), std::nullopt);
  EXPECT_EQ(find_result_info({}), std::nullopt);
}

TEST(Extension, SkipsUnknownOptionalExtensions) {
  Area area;
  append(area, 999, 5);
  append(area, 1000, 0);
  append(area, OpInfo{.count = 3});
  EXPECT_TRUE(check_extensions(area).ok());
  EXPECT_EQ(find_op_info(area), OpInfo{.count = 3});
}

TEST(Extension, RefusesUnknownMandatoryExtensions) {
  Area area;
  append(area, OpInfo{.count = 3});
  append(area, static_cast<uint16_t>(kMandatory | 999), 8);
  EXPECT_EQ(check_extensions(area), Status(Errc::kBadExtension));
}

TEST(Extension, RefusesUnsupportedMandatoryExtensions) {
  for (const auto reserved : {ExtensionType::kRdma, ExtensionType::kPriority}) {
    Area area;
    append(area, static_cast<uint16_t>(reserved), 8);
    EXPECT_TRUE(check_extensions(area).ok()) << "optional";
    store_le(area.data(), static_cast<uint16_t>(kMandatory | static_cast<uint16_t>(reserved)));
    EXPECT_EQ(check_extensions(area), Status(Errc::kBadExtension)) << static_cast<int>(reserved);
  }
  for (const auto known : {ExtensionType::kResult, ExtensionType::kTraceId, ExtensionType::kOpInfo}) {
    for (const size_t body : {size_t{0}, size_t{4}, size_t{8}, size_t{16}}) {
      Area area;
      append(area, static_cast<uint16_t>(kMandatory | static_cast<uint16_t>(known)), body);
      EXPECT_EQ(check_extensions(area).ok(), body == 8) << static_cast<int>(known) << " of " << body;
    }
  }
}

TEST(Extension, AcceptsKnownExtensionsMarkedMandatory) {
  Area area;
  append(area, OpInfo{.count = 3});
  store_le(area.data(), static_cast<uint16_t>(kMandatory | static_cast<uint16_t>(ExtensionType::kOpInfo)));
  EXPECT_TRUE(check_extensions(area).ok());
  EXPECT_EQ(find_op_info(area), OpInfo{.count = 3});
}

TEST(Extension, RefusesALengthBeyondTheArea) {
  for (const uint16_t body : {uint16_t{9}, uint16_t{16}, uint16_t{0xffff}}) {
    Area area;
    append(area, OpInfo{.count = 3});
    store_le(area.data() + 2, body);
    EXPECT_EQ(check_extensions(area), Status(Errc::kBadExtension)) << body;
    EXPECT_EQ(find_op_info(area), std::nullopt) << body;
  }
}

TEST(Extension, RefusesATruncatedHeader) {
  Area area;
  append(area, OpInfo{.count = 3});
  area.resize(area.size() + 7);
  EXPECT_EQ(check_extensions(area), Status(Errc::kBadExtension));
}

TEST(Extension, RefusesNonZeroReservedBytes) {
  Area unknown, expanded;
  append(unknown, 999, 5);
  append(expanded, Expanded{.bytes = 0xffffffff});
  Area mandatory = expanded;
  store_le(mandatory.data(),
           static_cast<uint16_t>(kMandatory | static_cast<uint16_t>(ExtensionType::kExpanded)));
  const struct {
    const char* name;
    Area area;
    std::vector<size_t> reserved;
  } cases[] = {
      {"unknown, with padding", unknown, {4, 7, 13, 15}},
      {"EXPANDED", expanded, {4, 7, 12, 13, 14, 15}},
      {"EXPANDED, mandatory", mandatory, {4, 7, 12, 13, 14, 15}},
  };
  for (const auto& c : cases) {
    ASSERT_TRUE(check_extensions(c.area).ok()) << c.name;
    for (const size_t offset : c.reserved) {
      Area wrong = c.area;
      wrong[offset] = std::byte{1};
      EXPECT_EQ(check_extensions(wrong), Status(Errc::kBadExtension)) << c.name << ", offset " << offset;
    }
  }
}

TEST(Extension, IgnoresABodyOfUnexpectedSize) {
  Area area;
  append(area, static_cast<uint16_t>(ExtensionType::kOpInfo), 4);
  append(area, static_cast<uint16_t>(ExtensionType::kResult), 16);
  EXPECT_TRUE(check_extensions(area).ok());
  EXPECT_EQ(find_op_info(area), std::nullopt);
  EXPECT_EQ(find_result_info(area), std::nullopt);
}

}  // namespace
}  // namespace sluice::wire
