// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104). Implemented here because the NCCL plugin computes proofs
// too: it may depend only on libc, and must not conflict with another OpenSSL in the process. For connection
// setup: not optimized, and not constant-time in the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::wire {

using Digest = std::array<uint8_t, 32>;

[[nodiscard]] Digest sha256(std::span<const std::byte> data) noexcept;
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data) noexcept;

// Constant-time comparison: the time does not depend on the position of a difference.
[[nodiscard]] bool equal_digests(const Digest& a, const Digest& b) noexcept;

}  // namespace sluice::wire
