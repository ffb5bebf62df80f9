// Extensions are typed, 8-byte aligned fields between header and payload (protocol.md section 3). A receiver
// skips unknown optional extensions. A mandatory extension (bit 15 of the type) that is unknown, reserved, or
// of an unexpected size closes the endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/status.h"
#include "wire/dtype.h"
#include "wire/frame.h"

namespace sluice::wire {

inline constexpr uint16_t kMandatory = 0x8000;

enum class ExtensionType : uint16_t {
  kResult = 1,    // in RESULT: the last rank and its lag
  kRdma = 2,      // reserved: address and key
  kTraceId = 3,   // 64-bit id, passed on without interpretation
  kPriority = 4,  // reserved: 0 is most urgent
  kOpInfo = 5,    // in CONTRIBUTION: element count of the operation, for mismatch reports
  kOwner = 6,     // in CONTRIBUTION of kinds whose chunks have an owner
  kExpanded = 7,  // in frames with a sparse payload
  kFinding = 8,   // in RESULT: a rank's contribution looks wrong
  kCaller = 9,    // in CONTRIBUTION on a rail: what the host's ranks call, for mismatch reports
};

struct ResultInfo {
  uint32_t last_rank = 0;  // the rank whose contribution arrived last
  uint32_t lag_us = 0;     // time between the first and the last contribution, saturated
  friend bool operator==(const ResultInfo&, const ResultInfo&) = default;
};

struct OpInfo {
  uint64_t count = 0;  // elements of the whole operation
  friend bool operator==(const OpInfo&, const OpInfo&) = default;
};

struct ChunkOwner {
  uint32_t owner = 0;        // a rank
  uint32_t chunk_bytes = 0;  // of the chunk; the frame's payload may be empty
  friend bool operator==(const ChunkOwner&, const ChunkOwner&) = default;
};

struct Expanded {
  uint32_t bytes = 0;  // of the payload without encoding
  friend bool operator==(const Expanded&, const Expanded&) = default;
};

// What a reducer finds wrong with a rank's contribution to a chunk, most severe first.
enum class FindingKind : uint8_t {
  kNonFinite = 1,  // it has NaNs or infinities
  kOutlier = 2,    // its largest magnitude is far above that of the other ranks
  kZeros = 3,      // all its values are zero, and those of most ranks are not
};
inline constexpr size_t kFindingKindCount = 3;

// One for each chunk: the most severe kind, and of the ranks with it the lowest.
struct Finding {
  FindingKind kind = FindingKind::kNonFinite;
  uint16_t rank = 0;
  // kNonFinite: the number of such values, saturated. kOutlier: the bits of an f32, the largest magnitude
  // divided by the median of the ranks' largest. kZeros: 0.
  uint32_t value = 0;
  friend bool operator==(const Finding&, const Finding&) = default;
};

// The operation of a host's ranks, whose pieces look different on a rail. OP_INFO has its count.
struct Caller {
  uint32_t op_id = 0;
  uint16_t root = 0;  // of reduce and broadcast
  DType dtype = DType::kI8;
  Kind kind = Kind::kNone;
  Op op = Op::kSum;
  friend bool operator==(const Caller&, const Caller&) = default;
};

// Each occupies 16 bytes on the wire: type u16, body length u16, 4 zero bytes, body 8 bytes.
inline constexpr size_t kSmallExtensionBytes = 16;
using SmallExtension = std::span<std::byte, kSmallExtensionBytes>;
void encode_extension(const ResultInfo& info, SmallExtension out) noexcept;
void encode_extension(const OpInfo& info, SmallExtension out) noexcept;
void encode_extension(const ChunkOwner& owner, SmallExtension out) noexcept;
void encode_extension(const Expanded& expanded, SmallExtension out) noexcept;
void encode_extension(const Finding& finding, SmallExtension out) noexcept;
void encode_extension(const Caller& caller, SmallExtension out) noexcept;

// Checks a whole extension area. kBadExtension when a length exceeds the area, padding or the reserved half
// of EXPANDED is not zero, or a mandatory extension has an unsupported type or size.
[[nodiscard]] Status check_extensions(std::span<const std::byte> area) noexcept;

// Find an extension in a checked area.
[[nodiscard]] std::optional<ResultInfo> find_result_info(std::span<const std::byte> area) noexcept;
[[nodiscard]] std::optional<OpInfo> find_op_info(std::span<const std::byte> area) noexcept;
[[nodiscard]] std::optional<ChunkOwner> find_owner(std::span<const std::byte> area) noexcept;
[[nodiscard]] std::optional<Expanded> find_expanded(std::span<const std::byte> area) noexcept;
// Nothing for a kind of a later release.
[[nodiscard]] std::optional<Finding> find_finding(std::span<const std::byte> area) noexcept;
// The same for a type or operator.
[[nodiscard]] std::optional<Caller> find_caller(std::span<const std::byte> area) noexcept;

}  // namespace sluice::wire
