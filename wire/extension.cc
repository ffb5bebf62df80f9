#include "wire/extension.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/units.h"

namespace sluice::wire {
namespace {

constexpr size_t kExtensionHeader = 8;
constexpr size_t kSmallBody = kSmallExtensionBytes - kExtensionHeader;

void encode_extension_header(ExtensionType type, uint16_t body, std::byte* out) noexcept {
  store_le(out, static_cast<uint16_t>(type));
  store_le(out + 2, body);
  store_le(out + 4, uint32_t{0});
}

// True when a mandatory extension has a supported type and size. The reserved types are not supported.
bool is_supported(uint16_t type, size_t body) noexcept {
  switch (static_cast<ExtensionType>(type & ~kMandatory)) {
    case ExtensionType::kResult:
    case ExtensionType::kTraceId:
    case ExtensionType::kOpInfo:
    case ExtensionType::kOwner:
    case ExtensionType::kExpanded:
    case ExtensionType::kFinding:
    case ExtensionType::kCaller: return body == kSmallBody;
    case ExtensionType::kRdma:
    case ExtensionType::kPriority: return false;
  }
  return false;
}

// True when the second half of the body is reserved and must be zero.
bool has_reserved_word(uint16_t type, size_t body) noexcept {
  return static_cast<ExtensionType>(type & ~kMandatory) == ExtensionType::kExpanded && body == kSmallBody;
}

// Body of the first extension of `type` with exactly `size` bytes; empty when there is none.
std::span<const std::byte> find_body(std::span<const std::byte> area, ExtensionType type,
                                     size_t size) noexcept {
  while (area.size() >= kExtensionHeader) {
    const auto t = static_cast<uint16_t>(load_le<uint16_t>(area.data()) & ~kMandatory);
    const size_t body = load_le<uint16_t>(area.data() + 2);
    const size_t whole = kExtensionHeader + round_up(body, 8);
    if (whole > area.size()) break;
    if (t == static_cast<uint16_t>(type) && body == size) return area.subspan(kExtensionHeader, body);
    area = area.subspan(whole);
  }
  return {};
}

}  // namespace

void encode_extension(const ResultInfo& info, SmallExtension out) noexcept {
  encode_extension_header(ExtensionType::kResult, 8, out.data());
  store_le(out.data() + 8, info.last_rank);
  store_le(out.data() + 12, info.lag_us);
}

void encode_extension(const OpInfo& info, SmallExtension out) noexcept {
  encode_extension_header(ExtensionType::kOpInfo, 8, out.data());
  store_le(out.data() + 8, info.count);
}

void encode_extension(const ChunkOwner& owner, SmallExtension out) noexcept {
  encode_extension_header(ExtensionType::kOwner, 8, out.data());
  store_le(out.data() + 8, owner.owner);
  store_le(out.data() + 12, owner.chunk_bytes);
}

void encode_extension(const Expanded& expanded, SmallExtension out) noexcept {
  encode_extension_header(ExtensionType::kExpanded, 8, out.data());
  store_le(out.data() + 8, expanded.bytes);
  store_le(out.data() + 12, uint32_t{0});
}

void encode_extension(const Finding& finding, SmallExtension out) noexcept {
  encode_extension_header(ExtensionType::kFinding, 8, out.data());
  store_le(out.data() + 8, finding.rank);
  store_le(out.data() + 10, static_cast<uint16_t>(finding.kind));  // a byte, and one of padding
  store_le(out.data() + 12, finding.value);
}

void encode_extension(const Caller& caller, SmallExtension out) noexcept {
  encode_extension_header(ExtensionType::kCaller, 8, out.data());
  store_le(out.data() + 8, caller.op_id);
  store_le(out.data() + 12, caller.root);
  out[14] = std::byte(caller.dtype);
  out[15] = std::byte(caller.kind) | std::byte(caller.op) << 4;
}

Status check_extensions(std::span<const std::byte> area) noexcept {
  while (!area.empty()) {
    if (area.size() < kExtensionHeader) return Errc::kBadExtension;
    const auto type = load_le<uint16_t>(area.data());
    const size_t body = load_le<uint16_t>(area.data() + 2);
    const size_t whole = kExtensionHeader + round_up(body, 8);
    if (load_le<uint32_t>(area.data() + 4) != 0 || whole > area.size()) return Errc::kBadExtension;
    if ((type & kMandatory) != 0 && !is_supported(type, body)) return Errc::kBadExtension;
    if (has_reserved_word(type, body) && load_le<uint32_t>(area.data() + 12) != 0) return Errc::kBadExtension;
    const auto padding = area.subspan(kExtensionHeader + body, whole - kExtensionHeader - body);
    if (std::ranges::any_of(padding, [](std::byte b) { return b != std::byte{0}; }))
      return Errc::kBadExtension;
    area = area.subspan(whole);
  }
  return Errc::kOk;
}

std::optional<ResultInfo> find_result_info(std::span<const std::byte> area) noexcept {
  const auto body = find_body(area, ExtensionType::kResult, 8);
  if (body.empty()) return std::nullopt;
  return ResultInfo{.last_rank = load_le<uint32_t>(body.data()),
                    .lag_us = load_le<uint32_t>(body.data() + 4)};
}

std::optional<OpInfo> find_op_info(std::span<const std::byte> area) noexcept {
  const auto body = find_body(area, ExtensionType::kOpInfo, 8);
  if (body.empty()) return std::nullopt;
  return OpInfo{.count = load_le<uint64_t>(body.data())};
}

std::optional<ChunkOwner> find_owner(std::span<const std::byte> area) noexcept {
  const auto body = find_body(area, ExtensionType::kOwner, 8);
  if (body.empty()) return std::nullopt;
  return ChunkOwner{.owner = load_le<uint32_t>(body.data()),
                    .chunk_bytes = load_le<uint32_t>(body.data() + 4)};
}

std::optional<Expanded> find_expanded(std::span<const std::byte> area) noexcept {
  const auto body = find_body(area, ExtensionType::kExpanded, 8);
  if (body.empty()) return std::nullopt;
  return Expanded{.bytes = load_le<uint32_t>(body.data())};
}

std::optional<Finding> find_finding(std::span<const std::byte> area) noexcept {
  const auto body = find_body(area, ExtensionType::kFinding, 8);
  if (body.empty()) return std::nullopt;
  const auto kind = std::to_integer<uint8_t>(body[2]);
  if (kind < 1 || kind > kFindingKindCount) return std::nullopt;
  return Finding{.kind = static_cast<FindingKind>(kind),
                 .rank = load_le<uint16_t>(body.data()),
                 .value = load_le<uint32_t>(body.data() + 4)};
}

std::optional<Caller> find_caller(std::span<const std::byte> area) noexcept {
  const auto body = find_body(area, ExtensionType::kCaller, 8);
  if (body.empty()) return std::nullopt;
  const Caller out{.op_id = load_le<uint32_t>(body.data()),
                   .root = load_le<uint16_t>(body.data() + 4),
                   .dtype = static_cast<DType>(body[6]),
                   .kind = static_cast<Kind>(body[7] & std::byte{15}),
                   .op = static_cast<Op>(body[7] >> 4)};
  if (!is_valid(out.dtype) || !is_valid(out.op) || out.kind > Kind::kBroadcast) return std::nullopt;
  return out;
}

}  // namespace sluice::wire
