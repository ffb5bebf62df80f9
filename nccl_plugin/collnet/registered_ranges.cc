#include "nccl_plugin/collnet/registered_ranges.h"

#include <algorithm>
#include <utility>

namespace sluice::nccl::collnet {

RegisteredRanges::Added RegisteredRanges::add(const Range& range) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(entries_, [&](const auto& e) {
    return !e->is_released && e->range.data == range.data && e->range.bytes == range.bytes;
  });
  if (found != entries_.end()) {
    ++(*found)->count;
    return {found->get(), false};
  }
  entries_.push_back(std::make_unique<Entry>(Entry{.range = range, .count = 1, .is_released = false}));
  return {entries_.back().get(), true};
}

std::optional<RegisteredRanges::Range> RegisteredRanges::remove(void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(entries_, [handle](const auto& e) { return e.get() == handle; });
  if (found == entries_.end()) return std::nullopt;
  Entry& entry = **found;
  const Range range = entry.range;
  const bool first = !std::exchange(entry.is_released, true);
  if (--entry.count == 0) entries_.erase(found);
  return first ? std::optional(range) : std::nullopt;
}

size_t RegisteredRanges::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace sluice::nccl::collnet
