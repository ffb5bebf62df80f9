#include "wire/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "tests/support/crc32c_model.h"
#include "tests/support/hex_file.h"
#include "wire/extension.h"

namespace sluice::wire {
namespace {

using Header = std::array<std::byte, kHeaderBytes>;

// A golden frame file, and the header that it must have.
struct Golden {
  std::string file;
  FrameHeader header;
  std::vector<std::byte> bytes = {};

  [[nodiscard]] ConstHeaderBytes header_bytes() const { return std::span(bytes).first<kHeaderBytes>(); }
  [[nodiscard]] std::span<const std::byte> extensions() const {
    return std::span(bytes).subspan(kHeaderBytes, header.extension_bytes());
  }
  [[nodiscard]] std::span<const std::byte> payload() const {
    return std::span(bytes).subspan(kHeaderBytes + header.extension_bytes());
  }
};

// Sets the fields that the frames of one lane share. `count`: the elements of the operation.
FrameHeader on_lane(FrameHeader h, uint64_t count) {
  h.view_version = 1;
  h.session = 42;
  h.view_hash = 0xdeadbeef;
  h.slot = 3;
  h.kind = Kind::kAllreduce;
  h.sequence = 11;
  h.chunk = 23;
  h.acc_dtype = DType::kF32;
  h.result_dtype = h.wire_dtype;
  h.fingerprint = fingerprint(count, h.wire_dtype, h.op, h.kind);
  return h;
}

std::vector<Golden> golden_headers() {
  return {
      {"contribution.hex",
       {.type = FrameType::kContribution,
        .flags = kFlagPayloadCrc | kFlagResent,
        .ext_len8 = 2,
        .view_version = 0x1122,
        .session = 0x33445566,
        .view_hash = 0x778899aa,
        .slot = 0xbbcc,
        .kind = Kind::kAllreduce,
        .sequence = 0x0102030405060708,
        .chunk = 0x1112131415161718,
        .op_id = 0x21222324,
        .wire_dtype = DType::kF32,
        .acc_dtype = DType::kF32,
        .result_dtype = DType::kF32,
        .op = Op::kAvg,
        .length = 16,
        .fingerprint = fingerprint(0x0102030405060708, DType::kF32, Op::kAvg, Kind::kAllreduce)}},
      {"result.hex", on_lane({.type = FrameType::kResult,
                              .ext_len8 = 2,
                              .op_id = 0xffffffff,
                              .wire_dtype = DType::kBf16,
                              .op = Op::kMax,
                              .length = 12},
                             6)},
      {"blocks.hex", on_lane({.type = FrameType::kContribution,
                              .flags = kFlagPayloadCrc | kFlagAcceptsSparse,
                              .ext_len8 = 2,
                              .op_id = 5,
                              .wire_dtype = DType::kMxfp8,
                              .op = Op::kSum,
                              .length = 264},
                             9)},
      {"sparse.hex", on_lane({.type = FrameType::kResult,
                              .flags = kFlagPayloadCrc,
                              .ext_len8 = 4,
                              .encoding = Encoding::kSparse,
                              .op_id = 5,
                              .wire_dtype = DType::kF32,
                              .op = Op::kSum,
                              .length = 269},
                             259)},
      {"heartbeat.hex",
       {.type = FrameType::kHeartbeat, .flags = kFlagPayloadCrc, .session = 42, .length = 22}},
      {"grant.hex",
       {.type = FrameType::kGrant,
        .slot = 31,
        .sequence = 0x0102030405060708,
        .chunk = 0x1112131415161718,
        .op_id = 0x21222324}},
      {"piece.hex",
       {.type = FrameType::kPiece,
        .slot = 31,
        .sequence = 0x0102030405060708,
        .chunk = 29,
        .op_id = 3,
        .length = 5,
        .fingerprint = 8}},
  };
}

// Reads the files. Throws for a file whose length disagrees with the header.
std::vector<Golden> goldens() {
  std::vector<Golden> all = golden_headers();
  for (Golden& golden : all) {
    golden.bytes = test::read_hex_file(std::string(SLUICE_VECTORS) + "/" + golden.file);
    if (golden.bytes.size() != kHeaderBytes + golden.header.extension_bytes() + golden.header.length)
      throw std::runtime_error(golden.file + " has another length than its header");
    if ((golden.header.flags & kFlagPayloadCrc) != 0)
      golden.header.payload_crc = test::crc32c_model(golden.payload());
  }
  return all;
}

FrameHeader data_header() {
  return {.type = FrameType::kContribution,
          .kind = Kind::kAllreduce,
          .wire_dtype = DType::kF16,
          .acc_dtype = DType::kF32,
          .result_dtype = DType::kF16,
          .op = Op::kSum,
          .length = 64};
}

Header encode(const FrameHeader& h) {
  Header bytes{};
  encode_header(h, {}, bytes);
  return bytes;
}

Errc decode(const Header& bytes) {
  FrameHeader out;
  return decode_header(bytes, out).code();
}

TEST(Frame, EncodesTheGoldenVectors) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.file);
    Header encoded{};
    encode_header(golden.header, golden.extensions(), encoded);
    for (size_t i = 0; i < kHeaderBytes; ++i) EXPECT_EQ(encoded[i], golden.bytes[i]) << "at offset " << i;
  }
}

TEST(Frame, DecodesTheGoldenVectors) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.file);
    FrameHeader header;
    ASSERT_TRUE(decode_header(golden.header_bytes(), header).ok());
    EXPECT_EQ(header, golden.header);
    EXPECT_TRUE(verify_header(golden.header_bytes(), golden.extensions()).ok());
  }
}

TEST(Frame, CoversHeaderAndExtensionsWithTheHeaderCrc) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.file);
    const uint32_t expected =
        test::crc32c_model(golden.extensions(), test::crc32c_model(golden.header_bytes().first(60)));
    EXPECT_EQ(load_le<uint32_t>(golden.bytes.data() + 60), expected);
  }
}

// A change of one byte of a valid header, and the expected error.
struct WrongField {
  const char* name;
  size_t offset;
  uint8_t value;
  Errc expected;
};

void expect_refused(const FrameHeader& valid, std::span<const WrongField> wrong_fields) {
  ASSERT_EQ(decode(encode(valid)), Errc::kOk);
  for (const WrongField& wrong : wrong_fields) {
    Header bytes = encode(valid);
    bytes[wrong.offset] = static_cast<std::byte>(wrong.value);
    EXPECT_EQ(to_string(decode(bytes)), to_string(wrong.expected)) << wrong.name;
  }
}

TEST(Frame, RefusesEachWrongFieldWithItsCode) {
  const WrongField wrong_fields[] = {
      {"magic, first byte", 0, 0x54, Errc::kBadMagic},
      {"magic, last byte", 3, 0x00, Errc::kBadMagic},
      {"version 0", 4, kVersionMin - 1, Errc::kBadVersion},
      {"version above the supported range", 4, kVersionMax + 1, Errc::kBadVersion},
      {"type 0", 5, 0, Errc::kBadType},
      {"type between two blocks", 5, 34, Errc::kBadType},
      {"type 255", 5, 255, Errc::kBadType},
      {"lowest unknown flag", 6, 0x20, Errc::kBadField},
      {"highest unknown flag", 7, 0x80, Errc::kBadField},
      {"scale exponent", 9, 0xff, Errc::kBadEncoding},
      {"kind none", 22, 0, Errc::kBadKind},
      {"kind behind the last", 22, 6, Errc::kBadKind},
      {"kind unknown", 22, 200, Errc::kBadKind},
      {"encoding", 23, 2, Errc::kBadEncoding},
      {"wire dtype unknown", 44, 14, Errc::kBadDType},
      {"wire dtype with another accumulator", 44, 8, Errc::kBadDType},
      {"accumulator unknown", 45, 255, Errc::kBadDType},
      {"accumulator of another type", 45, 8, Errc::kBadDType},
      {"result dtype unknown", 46, 14, Errc::kBadDType},
      {"result dtype of another type", 46, 7, Errc::kBadDType},
      {"op unknown", 47, 5, Errc::kBadOp},
      {"length 0", 48, 0, Errc::kBadLength},
      {"length of half an element", 48, 63, Errc::kBadLength},
      {"length above the largest payload", 51, 1, Errc::kBadLength},
  };
  expect_refused(data_header(), wrong_fields);
}

TEST(Frame, RefusesAControlFrameWithDataFields) {
  const FrameHeader control{.type = FrameType::kHeartbeat, .length = 22};
  const WrongField wrong_fields[] = {
      {"scale exponent", 9, 1, Errc::kBadEncoding},
      {"kind", 22, 1, Errc::kBadKind},
      {"encoding", 23, 1, Errc::kBadEncoding},
  };
  expect_refused(control, wrong_fields);
}

TEST(Frame, LimitsThePayloadLength) {
  FrameHeader data = data_header();
  data.length = kMaxPayload;
  EXPECT_EQ(decode(encode(data)), Errc::kOk);
  data.length = kMaxPayload + 2;
  EXPECT_EQ(decode(encode(data)), Errc::kBadLength);
  FrameHeader control{.type = FrameType::kHello};
  control.length = kMaxControlPayload;
  EXPECT_EQ(decode(encode(control)), Errc::kOk);
  control.length = kMaxControlPayload + 1;
  EXPECT_EQ(decode(encode(control)), Errc::kBadLength);
}

TEST(Frame, DoesNotChangeTheOutputOnRefusal) {
  Header bytes = encode(data_header());
  bytes[47] = std::byte{99};
  FrameHeader out{.session = 77};
  const FrameHeader before = out;
  EXPECT_EQ(decode_header(bytes, out), Status(Errc::kBadOp));
  EXPECT_EQ(out, before);
}

TEST(Frame, DetectsEveryFlippedBitOfHeaderAndExtensions) {
  std::array<std::byte, kSmallExtensionBytes> extension{};
  encode_extension(ResultInfo{.last_rank = 3, .lag_us = 900}, extension);
  FrameHeader header = data_header();
  header.type = FrameType::kResult;
  header.ext_len8 = kSmallExtensionBytes / 8;
  Header bytes{};
  encode_header(header, extension, bytes);
  ASSERT_TRUE(verify_header(bytes, extension).ok());
  for (size_t bit = 0; bit < 8 * (kHeaderBytes + kSmallExtensionBytes); ++bit) {
    const auto mask = static_cast<std::byte>(1u << (bit % 8));
    std::byte& target = bit < 8 * kHeaderBytes ? bytes[bit / 8] : extension[bit / 8 - kHeaderBytes];
    target ^= mask;
    EXPECT_EQ(verify_header(bytes, extension), Status(Errc::kBadHeaderCrc)) << "bit " << bit;
    target ^= mask;
  }
}

TEST(Frame, ChecksTheFramingOfExtensionsAfterTheCrc) {
  std::array<std::byte, 8> unknown_mandatory{};
  store_le(unknown_mandatory.data(), static_cast<uint16_t>(kMandatory | 999));
  FrameHeader header = data_header();
  header.ext_len8 = 1;
  Header bytes{};
  encode_header(header, unknown_mandatory, bytes);
  EXPECT_EQ(verify_header(bytes, unknown_mandatory), Status(Errc::kBadExtension));
}

TEST(Frame, RoundTripsRandomDataHeaders) {
  std::mt19937_64 random(99);
  for (int round = 0; round < 2000; ++round) {
    FrameHeader header;
    header.type = random() % 2 == 0 ? FrameType::kContribution : FrameType::kResult;
    header.flags = static_cast<uint16_t>(random() & kKnownFlags);
    header.view_version = static_cast<uint16_t>(random());
    header.session = static_cast<uint32_t>(random());
    header.view_hash = static_cast<uint32_t>(random());
    header.slot = static_cast<uint16_t>(random());
    header.kind = Kind::kAllreduce;
    header.sequence = random();
    header.chunk = random();
    header.op_id = static_cast<uint32_t>(random());
    header.wire_dtype = static_cast<DType>(random() % kDTypeCount);
    header.acc_dtype = accumulator_of(header.wire_dtype);
    header.result_dtype = header.wire_dtype;
    header.op = static_cast<Op>(random() % kOpCount);
    if (!is_supported(header.wire_dtype, header.op)) header.op = Op::kAvg;
    const size_t elements = 1 + random() % (kMaxPayload / size_of(header.wire_dtype));
    header.length = static_cast<uint32_t>(elements * size_of(header.wire_dtype));
    header.fingerprint = static_cast<uint32_t>(random());
    header.payload_crc = static_cast<uint32_t>(random());
    const Header bytes = encode(header);
    FrameHeader decoded;
    ASSERT_TRUE(decode_header(bytes, decoded).ok());
    ASSERT_TRUE(verify_header(bytes, {}).ok());
    ASSERT_EQ(decoded, header);
  }
}

TEST(Frame, AcceptsExactlyTheKnownTypes) {
  int known = 0;
  for (int number = 0; number < 256; ++number) {
    FrameHeader header = data_header();
    header.type = static_cast<FrameType>(number);
    if (!is_data(header.type) || header.type == FrameType::kPiece || header.type == FrameType::kModelData)
      header = {.type = header.type};
    const Errc expected = is_known(header.type) ? Errc::kOk : Errc::kBadType;
    EXPECT_EQ(decode(encode(header)), expected) << number;
    known += is_known(header.type) ? 1 : 0;
  }
  EXPECT_EQ(known, 56);
}

TEST(Frame, FingerprintsCountTypeOperatorAndKind) {
  const uint32_t base = fingerprint(1000, DType::kF32, Op::kSum, Kind::kAllreduce);
  std::array<std::byte, 16> bytes{};
  store_le(bytes.data(), uint64_t{1000});
  bytes[8] = std::byte{7};
  bytes[10] = std::byte{1};
  EXPECT_EQ(base, test::crc32c_model(bytes));
  EXPECT_NE(base, fingerprint(1001, DType::kF32, Op::kSum, Kind::kAllreduce));
  EXPECT_NE(base, fingerprint(1000, DType::kI32, Op::kSum, Kind::kAllreduce));
  EXPECT_NE(base, fingerprint(1000, DType::kF32, Op::kAvg, Kind::kAllreduce));
  EXPECT_NE(base, fingerprint(1000, DType::kF32, Op::kSum, Kind::kReduceScatter));
}

}  // namespace
}  // namespace sluice::wire
