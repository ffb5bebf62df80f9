#include "reducer/kernels/targets/cpu_targets.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "reducer/kernels/targets.h"
//
#include "hwy/base.h"
#include "hwy/detect_targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace sluice::kernels {
namespace {

constexpr int64_t kWithoutVectors = HWY_EMU128 | HWY_SCALAR;  // on every CPU, where they are compiled

}  // namespace

#if HWY_ARCH_X86
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero if the CPU does not have the leaf.
Registers cpuid(unsigned leaf) noexcept {
  Registers r;
  if (__get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool has_all(unsigned value, unsigned bits) noexcept {
  return (value & bits) == bits;
}

// The registers that the operating system saves at a context switch. Only with OSXSAVE.
unsigned saved_registers() noexcept {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

// The features with which set_macros-inl.h of Highway compiles a target.
int64_t supported_targets() noexcept {
  constexpr unsigned kAvxState = 0x6, kAvx512State = 0xe6;
  constexpr unsigned kAvx2Of1 = bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_PCLMUL | bit_AES |
                                bit_AVX | bit_FMA | bit_F16C | bit_OSXSAVE;
  constexpr unsigned kAvx2Of7 = bit_AVX2 | bit_BMI | bit_BMI2;
  constexpr unsigned kAvx3Of7 = bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL;
  const Registers leaf7 = cpuid(7);
  if (!has_all(cpuid(1).ecx, kAvx2Of1) || !has_all(leaf7.ebx, kAvx2Of7) ||
      !has_all(cpuid(0x80000001).ecx, bit_LZCNT)) {
    return kWithoutVectors;
  }
  const unsigned saved = saved_registers();
  if (!has_all(saved, kAvxState)) return kWithoutVectors;
  const bool has_avx3 = has_all(leaf7.ebx, kAvx3Of7) && has_all(saved, kAvx512State);
  return kWithoutVectors | HWY_AVX2 | (has_avx3 ? HWY_AVX3 : 0);
}
#elif HWY_ARCH_ARM && defined(HWCAP_AES)
// Highway's NEON target includes the cryptographic extension.
int64_t supported_targets() noexcept {
  return kWithoutVectors | ((getauxval(AT_HWCAP) & HWCAP_AES) != 0 ? HWY_NEON : 0);
}
#else
int64_t supported_targets() noexcept {
  return kWithoutVectors;
}
#endif

}  // namespace sluice::kernels

// Assertions in Highway's headers call it in builds without optimization.
void hwy::Abort(const char* file, int line, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "%s:%d: ", file, line);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::abort();
}
