#include "gpu_client/engine/recovery/recovery_counters.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace sluice::engine {

void RecoveryCounters::begin_stall() noexcept {
  if (stalled_since_ == 0) stalled_since_ = monotonic_now();
}

std::optional<Nanos> RecoveryCounters::end_stall() noexcept {
  if (stalled_since_ == 0) return std::nullopt;
  const Nanos duration = monotonic_now() - std::exchange(stalled_since_, 0);
  const auto ns = static_cast<uint64_t>(duration);
  stalled_ns_.fetch_add(ns, std::memory_order_relaxed);
  const auto bucket = std::ranges::upper_bound(RecoveryStats::kBounds, duration);
  stalls_[static_cast<size_t>(bucket - RecoveryStats::kBounds.begin())].fetch_add(1,
                                                                                  std::memory_order_relaxed);
  if (ns > longest_stall_ns_.load(std::memory_order_relaxed))
    longest_stall_ns_.store(ns, std::memory_order_relaxed);
  return duration;
}

RecoveryStats RecoveryCounters::get() const noexcept {
  RecoveryStats stats{.connections_resumed = resumed_.load(std::memory_order_relaxed),
                      .view_changes = view_changes_.load(std::memory_order_relaxed),
                      .reducers_lost = reducers_lost_.load(std::memory_order_relaxed),
                      .stalled_ns = stalled_ns_.load(std::memory_order_relaxed),
                      .longest_stall_ns = longest_stall_ns_.load(std::memory_order_relaxed)};
  for (size_t i = 0; i < stalls_.size(); ++i) stats.stalls[i] = stalls_[i].load(std::memory_order_relaxed);
  return stats;
}

}  // namespace sluice::engine
