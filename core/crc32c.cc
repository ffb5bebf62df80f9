#include "core/crc32c.h"

#include <array>
#include <atomic>

#include "core/crc32c/impl.h"

namespace sluice {
namespace {

uint32_t choose(const std::byte* data, size_t size, uint32_t crc) noexcept;

// Starts as choose() and is replaced at the first call. So it works during static initialization and needs no
// guard. Threads that race at the first call store the same value.
constinit std::atomic<Crc32cFunction> chosen{&choose};

uint32_t choose(const std::byte* data, size_t size, uint32_t crc) noexcept {
  const Crc32cFunction function = crc32c_chosen().function;
  chosen.store(function, std::memory_order_relaxed);
  return function(data, size, crc);
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) noexcept {
  return chosen.load(std::memory_order_relaxed)(data.data(), data.size(), crc);
}

// Ordered from the slowest to the fastest.
std::span<const Crc32cTarget> crc32c_targets() noexcept {
#if SLUICE_CRC32C_X86
  static const std::array<Crc32cTarget, 3> targets{{
      {"table", &crc32c_impl::table},
      {"sse42", crc32c_impl::has_sse42() ? &crc32c_impl::sse42 : nullptr},
      {"vpclmul", crc32c_impl::has_vpclmul() ? &crc32c_impl::vpclmul : nullptr},
  }};
#elif SLUICE_CRC32C_ARM
  static const std::array<Crc32cTarget, 2> targets{{
      {"table", &crc32c_impl::table},
      {"armv8", crc32c_impl::has_armv8_crc() ? &crc32c_impl::armv8_crc : nullptr},
  }};
#else
  static const std::array<Crc32cTarget, 1> targets{{{"table", &crc32c_impl::table}}};
#endif
  return targets;
}

const Crc32cTarget& crc32c_chosen() noexcept {
  const std::span<const Crc32cTarget> targets = crc32c_targets();
  size_t best = 0;
  for (size_t i = 1; i < targets.size(); ++i) {
    if (targets[i].function != nullptr) best = i;
  }
  return targets[best];
}

}  // namespace sluice
