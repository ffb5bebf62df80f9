// Class RecoveryCounters counts what recovery from losses did to a session, and how long it took.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/units.h"

namespace sluice::engine {

struct RecoveryStats {
  // A stall of recovery lasts from the first sign of a loss to the restart or the last resumed connection,
  // with or without an open operation. The time before that sign, such as that of a peer timeout, counts in
  // the session's longest stall (StallMeter).
  // Upper bounds of the histogram `stalls`; its last bucket has longer stalls.
  static constexpr std::array<Nanos, 4> kBounds = {10 * kMillisecond, 100 * kMillisecond, kSecond,
                                                   10 * kSecond};
  uint64_t connections_resumed = 0;
  uint64_t view_changes = 0;
  uint32_t reducers_lost = 0;  // removed because this rank had lost them: neither drained nor unlisted
  uint64_t stalled_ns = 0;     // sum of all stalls of recovery
  std::array<uint32_t, kBounds.size() + 1> stalls{};

  RecoveryStats& operator+=(const RecoveryStats& other) noexcept {
    connections_resumed += other.connections_resumed;
    view_changes += other.view_changes;
    reducers_lost += other.reducers_lost;
    stalled_ns += other.stalled_ns;
    for (size_t i = 0; i < stalls.size(); ++i) stalls[i] += other.stalls[i];
    return *this;
  }
};

class RecoveryCounters {
 public:
  // The thread of Recovery; get() from any thread.
  void add_resumed_connection() noexcept { resumed_.fetch_add(1, std::memory_order_relaxed); }
  void add_view_change() noexcept { view_changes_.fetch_add(1, std::memory_order_relaxed); }
  void add_lost_reducer() noexcept { reducers_lost_.fetch_add(1, std::memory_order_relaxed); }
  // Starts a stall, unless one is in progress.
  void begin_stall() noexcept {
    if (stalled_since_ == 0) stalled_since_ = monotonic_now();
  }
  // Ends the stall and returns its duration; nullopt when there is none.
  [[nodiscard]] std::optional<Nanos> end_stall() noexcept {
    if (stalled_since_ == 0) return std::nullopt;
    const Nanos duration = monotonic_now() - std::exchange(stalled_since_, 0);
    const auto ns = static_cast<uint64_t>(duration);
    stalled_ns_.fetch_add(ns, std::memory_order_relaxed);
    const auto bucket =
        std::ranges::upper_bound(RecoveryStats::kBounds, duration) - RecoveryStats::kBounds.begin();
    stalls_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    return duration;
  }

  [[nodiscard]] RecoveryStats get() const noexcept {
    RecoveryStats stats{.connections_resumed = resumed_.load(std::memory_order_relaxed),
                        .view_changes = view_changes_.load(std::memory_order_relaxed),
                        .reducers_lost = reducers_lost_.load(std::memory_order_relaxed),
                        .stalled_ns = stalled_ns_.load(std::memory_order_relaxed)};
    for (size_t i = 0; i < stalls_.size(); ++i) stats.stalls[i] = stalls_[i].load(std::memory_order_relaxed);
    return stats;
  }

 private:
  Nanos stalled_since_ = 0;  // 0: no stall
  std::atomic<uint64_t> resumed_{0}, view_changes_{0}, stalled_ns_{0};
  std::atomic<uint32_t> reducers_lost_{0};
  std::array<std::atomic<uint32_t>, RecoveryStats::kBounds.size() + 1> stalls_{};
};

}  // namespace sluice::engine
