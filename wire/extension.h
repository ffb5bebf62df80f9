// Extensions: typed fields between header and payload, each 8-byte aligned. PROTOCOL.md section 3. An unknown
// optional extension is skipped; a mandatory one (bit 15 of the type) that is unknown, reserved, or of
// another size closes the endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/status.h"

namespace sluice::wire {

inline constexpr uint16_t kMandatory = 0x8000;

enum class ExtensionType : uint16_t {
  kResult = 1,    // in RESULT: who came last, and how late
  kRdma = 2,      // reserved: address and key
  kTraceId = 3,   // 64-bit id carried through, not interpreted
  kPriority = 4,  // reserved: 0 is most urgent
  kOpInfo = 5,    // in CONTRIBUTION: count of elements of the whole operation, to name a mismatch by value
};

struct ResultInfo {
  uint32_t last_rank = 0;  // the rank whose contribution came last
  uint32_t lag_us = 0;     // microseconds between the first and the last contribution, saturated
  friend bool operator==(const ResultInfo&, const ResultInfo&) = default;
};

struct OpInfo {
  uint64_t count = 0;  // elements of the whole operation
  friend bool operator==(const OpInfo&, const OpInfo&) = default;
};

// Each occupies 16 bytes on the wire: type u16, body length u16, 4 zero bytes, body 8 bytes.
inline constexpr size_t kSmallExtensionBytes = 16;
using SmallExtension = std::span<std::byte, kSmallExtensionBytes>;
void encode_extension(const ResultInfo& info, SmallExtension out) noexcept;
void encode_extension(const OpInfo& info, SmallExtension out) noexcept;

// Framing of a whole extension area: kBadExtension when a length runs out, padding is not zero, or a
// mandatory one is of a type or size that is not understood.
[[nodiscard]] Status check_extensions(std::span<const std::byte> area) noexcept;

// Find one in a checked area.
[[nodiscard]] std::optional<ResultInfo> find_result_info(std::span<const std::byte> area) noexcept;
[[nodiscard]] std::optional<OpInfo> find_op_info(std::span<const std::byte> area) noexcept;

}  // namespace sluice::wire
