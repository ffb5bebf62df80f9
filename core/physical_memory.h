// The memory of the machine, from which limits are derived.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace sluice {

[[nodiscard]] inline uint64_t physical_memory() noexcept {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace sluice
