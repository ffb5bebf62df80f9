// Selects the instruction sets that the folds are compiled for. Included before any Highway header, by every
// file that includes one.
//
// SSSE3 and SSE4 would serve only CPUs older than x86-64-v3 and cost a third of the compile time. Such a CPU
// gets the scalar target and the same bits. The scalable sets (SVE, RVV) do not allow vectors as struct
// members, which the folds need; an Arm server gets NEON.
//
// Sanitizers and clang-tidy look at the sources, which AVX2 and AVX3 share: there AVX3 would take a third of
// their time and tell nothing new. Tests of the release build run it between unmapped pages. Their baseline
// is the scalar target, as with g++ 12; the one with emulated vectors takes twice the time.
#pragma once

#include <bit>

#include "core/instrumented.h"

#if SLUICE_INSTRUMENTED || defined(__clang_analyzer__)
#define SLUICE_LEFT_OUT_TARGETS HWY_AVX3
#define HWY_BROKEN_EMU128 1
#else
#define SLUICE_LEFT_OUT_TARGETS 0
#endif
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | SLUICE_LEFT_OUT_TARGETS)
#endif

// Shifts split vectors of patterns.
static_assert(std::endian::native == std::endian::little);
