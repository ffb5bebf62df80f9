// The roof over a fold: one pass that only loads the same sources, in the same order of addresses, with the
// best target's vectors. For benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::kernels {

// Exclusive or of all whole 32-bit words of all sources, `bytes` each; a value only so that the loads are
// needed.
[[nodiscard]] uint32_t load_only(std::span<const std::byte* const> sources, size_t bytes) noexcept;

}  // namespace sluice::kernels
