// CRC-32C (Castagnoli; polynomial 0x1EDC6F41 reflected, initial value and final xor all ones; RFC 3720
// appendix B.4, check value 0xE3069283 for "123456789"). Own code rather than a library because it runs
// inside the NCCL plugin too, which may need only libc; the fastest of three implementations is picked once
// per process from what the CPU has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

// CRC of `data` continued from `crc`, the value returned for the bytes before it (0 to begin): crc32c(b,
// crc32c(a)) == crc32c(a followed by b). Any thread, no alignment asked.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0) noexcept;

// The implementations, for tests and benchmarks; nullptr where the CPU lacks what it takes.
using Crc32cFunction = uint32_t (*)(const std::byte* data, size_t size, uint32_t crc) noexcept;
struct Crc32cTarget {
  const char* name;  // "table", "sse42", "vpclmul"
  Crc32cFunction function;
};
[[nodiscard]] std::span<const Crc32cTarget> crc32c_targets() noexcept;

// The one that crc32c() runs in this process.
[[nodiscard]] const Crc32cTarget& crc32c_chosen() noexcept;

}  // namespace sluice
