// PathMonitor and PathWatch tell what the network does to the lane connections with one peer: lost packets,
// and data that the peer does not acknowledge.
//
// The owner thread of the endpoint samples at kInterval, because a sample may cost a system call. Any thread
// reads the sums.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/units.h"
#include "transport/transport.h"

namespace sluice::transport {

struct PathReport {
  uint64_t packets = 0;       // data packets sent
  uint64_t lost_packets = 0;  // sent again because they were lost
  Nanos stalled = 0;          // sent data has been unacknowledged without progress for so long
  uint32_t mtu = 0;           // largest packet that this host sends; 0: unknown

  PathReport& operator+=(const PathReport& r) noexcept {
    packets += r.packets, lost_packets += r.lost_packets;
    stalled = std::max(stalled, r.stalled), mtu = std::max(mtu, r.mtu);
    return *this;
  }
};

// Class PathMonitor accumulates the samples of successive connections of one lane.
class PathMonitor {
 public:
  static constexpr Nanos kInterval = kSecond;

  // A connection begins or has ended. Owner thread.
  void start() noexcept {
    last_ = {};
    stalled_since_.store(0, std::memory_order_relaxed);
  }
  // Owner thread. Returns what is new since the last sample.
  PathReport sample(const Endpoint& ep, Nanos now) noexcept;
  // By the last sample: sent data was not acknowledged yet. Owner thread.
  [[nodiscard]] bool has_unacked() const noexcept { return last_.has_unacked; }
  // Any thread. Without samples, a stall lasts no longer than two intervals after the last one.
  [[nodiscard]] PathReport report(Nanos now) const noexcept;

 private:
  PathStats last_;
  std::atomic<uint64_t> packets_{0}, lost_packets_{0};
  std::atomic<Nanos> sampled_at_{0};
  std::atomic<Nanos> stalled_since_{0};  // 0: no stall
  std::atomic<uint32_t> mtu_{0};
};

// The lane connections to one peer. Never resized: PathMonitor does not move.
using LanePaths = std::vector<PathMonitor>;
[[nodiscard]] PathReport sum(const LanePaths& paths, Nanos now) noexcept;

// Class PathWatch decides when the reports of a path deserve a line in the log. One thread.
class PathWatch {
 public:
  // No healthy path leaves data unacknowledged for so long.
  static constexpr Nanos kStall = 5 * kSecond;
  // Losses are judged over this time. Congestion control causes losses too, but fewer.
  static constexpr Nanos kWindow = 10 * kSecond;
  static constexpr double kLossShare = 0.005;
  static constexpr uint64_t kLeastLosses = 50;
  static constexpr Nanos kRepeat = 600 * kSecond;  // between two lines about losses, or about stalls

  // `total`: sums since the session began, in both directions. Returns the text of a due line.
  [[nodiscard]] std::optional<std::string> add_losses(const PathReport& total, Nanos now);
  // True when a line about a stall is due: once for each, and not for each of many.
  [[nodiscard]] bool is_new_stall(Nanos stalled, Nanos now) noexcept;

 private:
  PathReport begin_;
  Nanos began_at_ = 0;
  Nanos losses_logged_at_ = 0, stall_logged_at_ = 0;
  bool is_stall_logged_ = false;  // the present one
};

}  // namespace sluice::transport
