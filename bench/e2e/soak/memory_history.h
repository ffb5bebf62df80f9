// Class MemoryHistory records the memory use of a long run in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/units.h"

namespace sluice::bench {

// Returns the resident set size of this process in bytes; 0 when /proc is not readable.
[[nodiscard]] uint64_t resident_bytes();

class MemoryHistory {
 public:
  static constexpr size_t kCapacity = 1024;  // entries; a full history drops every second entry

  // Adds an entry unless the previous entry is too recent. Times ascend.
  void add(Nanos time, uint64_t bytes);
  // Returns the first entry at or after `time`, otherwise the last one; 0 for an empty history.
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
