// Detects the instruction sets of this CPU.
//
// Highway's own detection is in libhwy, which distributions ship only as a shared library. The folds are part
// of the NCCL plugin too, which may need no library but libc. So only Highway's headers are used.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The targets that the CPU and the operating system support, as bits such as HWY_AVX3. Any thread.
[[nodiscard]] int64_t supported_targets() noexcept;

}  // namespace sluice::kernels
