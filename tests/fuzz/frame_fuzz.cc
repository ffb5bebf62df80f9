// Fuzzes the header codec and the framing of extensions. Bits of the first input byte repair values that a
// fuzzer rarely guesses: bit 0 the magic, bit 1 the header CRC.
#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "tests/fuzz/input.h"
#include "tests/support/crc32c_model.h"
#include "wire/extension.h"
#include "wire/frame.h"

namespace sluice::fuzz {
namespace {

using wire::FrameHeader;

// The guarantees of protocol.md section 2 for an accepted header.
void check_accepted(const FrameHeader& h) {
  SLUICE_ASSERT(wire::is_known(h.type));
  SLUICE_ASSERT((h.flags & ~wire::kKnownFlags) == 0);
  SLUICE_ASSERT(h.version != 0);
  SLUICE_ASSERT(h.scale_exponent == 0);
  if (!wire::is_data(h.type) || h.type == wire::FrameType::kPiece || h.type == wire::FrameType::kModelData) {
    const size_t most = wire::is_data(h.type) ? wire::kMaxPayload : wire::kMaxControlPayload;
    SLUICE_ASSERT(h.length <= most && h.kind == wire::Kind::kNone && h.encoding == wire::Encoding::kPlain);
    SLUICE_ASSERT(h.type != wire::FrameType::kGrant || h.length == 0);
    return;
  }
  SLUICE_ASSERT(h.kind >= wire::Kind::kAllreduce && h.kind <= wire::Kind::kBroadcast);
  SLUICE_ASSERT(wire::is_valid(h.wire_dtype) && wire::is_valid(h.op));
  SLUICE_ASSERT(h.acc_dtype == wire::accumulator_of(h.wire_dtype) && h.result_dtype == h.wire_dtype);
  const bool sparse = h.encoding == wire::Encoding::kSparse;
  SLUICE_ASSERT(sparse || h.encoding == wire::Encoding::kPlain);
  const bool may_be_empty = h.kind != wire::Kind::kAllreduce && !sparse;
  SLUICE_ASSERT((h.length > 0 || may_be_empty) && h.length <= wire::kMaxPayload);
  SLUICE_ASSERT(sparse || h.length % wire::size_of(h.wire_dtype) == 0);
  const bool block = h.wire_dtype == wire::DType::kMxfp8 || h.wire_dtype == wire::DType::kInt8Block;
  SLUICE_ASSERT(!block || h.op == wire::Op::kSum || h.op == wire::Op::kAvg);
}

// The extensions of an area according to protocol.md section 3: the first of each type with a body of 8
// bytes.
struct ParsedArea {
  bool well_formed = true;
  std::optional<wire::ResultInfo> result{};
  std::optional<wire::OpInfo> op{};
  std::optional<wire::ChunkOwner> owner{};
  std::optional<wire::Expanded> expanded{};
  std::optional<wire::Caller> caller{};
  bool has_caller = false;  // the first one counts, also if it is of no known operation
};

ParsedArea parse_area(std::span<const std::byte> area) {
  ParsedArea parsed;
  size_t at = 0;
  while (at < area.size()) {
    if (area.size() - at < 8) return {.well_formed = false};
    const std::byte* p = area.data() + at;
    const auto type = load_le<uint16_t>(p);
    const size_t body = load_le<uint16_t>(p + 2);
    const size_t padded = (body + 7) / 8 * 8;
    if (load_le<uint32_t>(p + 4) != 0 || area.size() - at - 8 < padded) return {.well_formed = false};
    for (size_t i = body; i < padded; ++i) {
      if (p[8 + i] != std::byte{0}) return {.well_formed = false};
    }
    const unsigned plain = type & 0x7fffu;
    const bool is_supported = (plain == 1 || plain == 3 || (plain >= 5 && plain <= 9)) && body == 8;
    if (type >= 0x8000 && !is_supported) return {.well_formed = false};
    if (plain == 7 && body == 8 && load_le<uint32_t>(p + 12) != 0) return {.well_formed = false};
    if (plain == 1 && body == 8 && !parsed.result)
      parsed.result = {.last_rank = load_le<uint32_t>(p + 8), .lag_us = load_le<uint32_t>(p + 12)};
    if (plain == 5 && body == 8 && !parsed.op) parsed.op = {.count = load_le<uint64_t>(p + 8)};
    if (plain == 6 && body == 8 && !parsed.owner)
      parsed.owner = {.owner = load_le<uint32_t>(p + 8), .chunk_bytes = load_le<uint32_t>(p + 12)};
    if (plain == 7 && body == 8 && !parsed.expanded) parsed.expanded = {.bytes = load_le<uint32_t>(p + 8)};
    if (plain == 9 && body == 8 && !std::exchange(parsed.has_caller, true)) {
      const wire::Caller caller{.op_id = load_le<uint32_t>(p + 8),
                                .root = load_le<uint16_t>(p + 12),
                                .dtype = static_cast<wire::DType>(p[14]),
                                .kind = static_cast<wire::Kind>(std::to_integer<unsigned>(p[15]) % 16),
                                .op = static_cast<wire::Op>(std::to_integer<unsigned>(p[15]) / 16)};
      const bool is_known =
          wire::is_valid(caller.dtype) && wire::is_valid(caller.op) && caller.kind <= wire::Kind::kBroadcast;
      if (is_known) parsed.caller = caller;
    }
    at += 8 + padded;
  }
  return parsed;
}

void check_extensions(std::span<const std::byte> area) {
  const ParsedArea parsed = parse_area(area);
  const bool accepted = wire::check_extensions(area).ok();
  SLUICE_ASSERT(accepted == parsed.well_formed);
  const auto result = wire::find_result_info(area);
  const auto op = wire::find_op_info(area);
  const auto owner = wire::find_owner(area);
  const auto expanded = wire::find_expanded(area);
  const auto caller = wire::find_caller(area);
  if (!accepted) return;  // a refused area must only not be read out of bounds
  SLUICE_ASSERT(result == parsed.result);
  SLUICE_ASSERT(op == parsed.op);
  SLUICE_ASSERT(owner == parsed.owner);
  SLUICE_ASSERT(expanded == parsed.expanded);
  SLUICE_ASSERT(caller == parsed.caller);
}

}  // namespace

void fuzz_one(Input in) {
  const uint8_t repair = in.u8();
  const Bytes raw = in.exactly(wire::kHeaderBytes);
  std::array<std::byte, wire::kHeaderBytes> header{};
  std::ranges::copy(raw, header.begin());
  if ((repair & 1) != 0) store_le(header.data(), wire::kMagic);
  const size_t area_bytes = std::to_integer<size_t>(header[8]) * 8;
  const Bytes area = in.exactly(area_bytes);
  if ((repair & 2) != 0)
    store_le(header.data() + 60, test::crc32c_model(area, test::crc32c_model(std::span(header).first(60))));

  const FrameHeader untouched{.session = 0x5a5a5a5a, .sequence = 77};
  FrameHeader h = untouched;
  const Status decoded = wire::decode_header(header, h);
  const Status verified = wire::verify_header(header, area);
  if (decoded.ok()) {
    check_accepted(h);
    SLUICE_ASSERT(h.extension_bytes() == area.size());
    std::array<std::byte, wire::kHeaderBytes> again{};
    wire::encode_header(h, area, again);
    SLUICE_ASSERT(std::ranges::equal(std::span(again).first(60), std::span(header).first(60)));
    const bool same_crc = again == header;
    SLUICE_ASSERT(same_crc || verified == Status(Errc::kBadHeaderCrc));
    SLUICE_ASSERT(!same_crc || verified.ok() == wire::check_extensions(area).ok());
    FrameHeader twice;
    SLUICE_ASSERT(wire::decode_header(again, twice).ok() && twice == h);
  } else {
    SLUICE_ASSERT(h == untouched);
  }
  check_extensions(area);
  check_extensions(in.at_most(in.left()));  // an area of any length
}

}  // namespace sluice::fuzz
