// CRC-32C (Castagnoli; polynomial 0x1EDC6F41 reflected, initial value and final xor all ones; RFC 3720
// appendix B.4, check value 0xE3069283 for "123456789"). Implemented here because the NCCL plugin, which may
// depend only on libc, uses it too. The process selects the fastest implementation that the CPU supports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

// Returns the CRC of `data`, continued from `crc`, the result for the preceding bytes (0 at the start):
// crc32c(b, crc32c(a)) == crc32c(a followed by b). Any thread, any alignment.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0) noexcept;

// All implementations, for tests and benchmarks. The function is nullptr if the CPU lacks its instructions.
using Crc32cFunction = uint32_t (*)(const std::byte* data, size_t size, uint32_t crc) noexcept;
struct Crc32cTarget {
  const char* name;  // "table", "sse42", "vpclmul", "armv8"
  Crc32cFunction function;
};
[[nodiscard]] std::span<const Crc32cTarget> crc32c_targets() noexcept;

// The implementation that crc32c() uses in this process.
[[nodiscard]] const Crc32cTarget& crc32c_chosen() noexcept;

}  // namespace sluice
