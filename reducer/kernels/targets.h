// Which instruction sets the folds are compiled for. Included before any Highway header, by every file that
// includes one.
//
// SSSE3 and SSE4 would serve only CPUs older than x86-64-v3, which no reducer runs on, at a third of the
// compile time; such a CPU gets the scalar target and the same bits. The scalable sets (SVE, RVV) forbid
// vectors as members of a struct, which the folds are made of; an Arm server gets NEON.
#pragma once

#include <bit>

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

// Vectors of patterns are taken apart by shifts.
static_assert(std::endian::native == std::endian::little);
