// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104). Own code: job tokens are proved inside the NCCL plugin
// too, which may need only libc and must not meet another OpenSSL in the same process. Set-up path; not fast,
// not constant time in the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::wire {

using Digest = std::array<uint8_t, 32>;

[[nodiscard]] Digest sha256(std::span<const std::byte> data) noexcept;
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data) noexcept;

// Compares in time that does not depend on where two digests differ.
[[nodiscard]] bool equal_digests(const Digest& a, const Digest& b) noexcept;

}  // namespace sluice::wire
