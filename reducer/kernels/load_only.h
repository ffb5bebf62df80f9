// The memory-bandwidth bound of a fold, for benchmarks: one pass that only loads the same sources, in the
// same order of addresses, with the best target's vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::kernels {

// Returns the exclusive or of all whole 32-bit words of all sources of `bytes` each. The value only keeps the
// compiler from removing the loads.
[[nodiscard]] uint32_t load_only(std::span<const std::byte* const> sources, size_t bytes) noexcept;

}  // namespace sluice::kernels
