#include "bench/e2e/soak/memory_history.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace sluice::bench {

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void MemoryHistory::add(Nanos time, uint64_t bytes) {
  if (!entries_.empty() && time - entries_.back().time < spacing_) return;
  if (entries_.size() == kCapacity) {
    for (size_t i = 0; i < kCapacity / 2; ++i) entries_[i] = entries_[2 * i];
    entries_.resize(kCapacity / 2);
    spacing_ = (entries_.back().time - entries_.front().time) / static_cast<Nanos>(entries_.size());
  }
  entries_.push_back({.time = time, .bytes = bytes});
}

uint64_t MemoryHistory::at(Nanos time) const {
  if (entries_.empty()) return 0;
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [time](const Entry& e) { return e.time >= time; });
  return found == entries_.end() ? entries_.back().bytes : found->bytes;
}

}  // namespace sluice::bench
