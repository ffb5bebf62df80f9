// The kernel lists the features of the CPU that it supports too; /proc/cpuinfo is independent of our
// detection.
#include "reducer/kernels/targets/cpu_targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string>

#include "reducer/kernels/targets.h"
//
#include "hwy/detect_targets.h"

namespace sluice::kernels {
namespace {

std::set<std::string> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; flags.empty() && std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) flags.insert(word);
  }
  return flags;
}

TEST(CpuTargets, AreThoseWhoseFeaturesTheKernelLists) {
  const auto flags = cpu_flags();
  ASSERT_FALSE(flags.empty());
  [[maybe_unused]] const auto has = [&](std::initializer_list<const char*> names) {
    return std::ranges::all_of(names, [&](const char* name) { return flags.contains(name); });
  };
  int64_t expected = HWY_EMU128 | HWY_SCALAR;
#if HWY_ARCH_X86
  if (has({"pni", "ssse3", "sse4_1", "sse4_2", "pclmulqdq", "aes", "avx", "avx2", "bmi1", "bmi2", "fma",
           "f16c", "abm"})) {
    expected |= HWY_AVX2;
    if (has({"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx512cd"})) expected |= HWY_AVX3;
  }
#elif HWY_ARCH_ARM
  if (has({"aes"})) expected |= HWY_NEON;
#endif
  EXPECT_EQ(supported_targets(), expected);
}

}  // namespace
}  // namespace sluice::kernels
