// How the memory of a long run went, in bounded memory itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/units.h"

namespace sluice::bench {

// Bytes of this process that are in memory now (RSS); 0 when the kernel does not say.
[[nodiscard]] uint64_t resident_bytes();

class MemoryHistory {
 public:
  static constexpr size_t kMost = 1024;  // kept; when it is full every second one goes

  // Times ascend. One that comes too soon after the last one kept is left out.
  void add(Nanos time, uint64_t bytes);
  // The first that was kept at `time` or later, else the last; 0 without any.
  [[nodiscard]] uint64_t at(Nanos time) const;

 private:
  struct Entry {
    Nanos time;
    uint64_t bytes;
  };
  std::vector<Entry> entries_;
  Nanos spacing_ = 0;
};

}  // namespace sluice::bench
