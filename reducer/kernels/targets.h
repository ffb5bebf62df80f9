// Selects the instruction sets that the folds are compiled for. Included before any Highway header, by every
// file that includes one.
//
// SSSE3 and SSE4 would serve only CPUs older than x86-64-v3 and cost a third of the compile time. Such a CPU
// gets the scalar target and the same bits. The scalable sets (SVE, RVV) do not allow vectors as struct
// members, which the folds need; an Arm server gets NEON.
#pragma once

#include <bit>

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

// Shifts split vectors of patterns.
static_assert(std::endian::native == std::endian::little);
