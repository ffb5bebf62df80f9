#include "transport/path_monitor.h"

#include <array>
#include <cstdio>
#include <utility>

namespace sluice::transport {

PathReport PathMonitor::sample(const Endpoint& ep, Nanos now) noexcept {
  const PathStats before = last_;
  last_ = ep.path_stats();
  // The count of lost packets falls when the peer reports that a packet was only late.
  last_.lost_packets = std::max(last_.lost_packets, before.lost_packets);
  const PathReport news{.packets = last_.packets - std::min(before.packets, last_.packets),
                        .lost_packets = last_.lost_packets - before.lost_packets};
  // This thread writes alone, so no atomic addition is needed.
  packets_.store(packets_.load(std::memory_order_relaxed) + news.packets, std::memory_order_relaxed);
  lost_packets_.store(lost_packets_.load(std::memory_order_relaxed) + news.lost_packets,
                      std::memory_order_relaxed);
  mtu_.store(last_.mtu, std::memory_order_relaxed);
  const bool stalled = before.has_unacked && last_.has_unacked && before.acked_bytes == last_.acked_bytes;
  if (!stalled) {
    stalled_since_.store(0, std::memory_order_relaxed);
  } else if (stalled_since_.load(std::memory_order_relaxed) == 0) {
    stalled_since_.store(sampled_at_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  sampled_at_.store(now, std::memory_order_relaxed);
  return news;
}

PathReport PathMonitor::report(Nanos now) const noexcept {
  const Nanos since = stalled_since_.load(std::memory_order_relaxed);
  const Nanos until = std::min(now, sampled_at_.load(std::memory_order_relaxed) + 2 * kInterval);
  return {.packets = packets_.load(std::memory_order_relaxed),
          .lost_packets = lost_packets_.load(std::memory_order_relaxed),
          .stalled = since == 0 ? 0 : std::max<Nanos>(until - since, 0),
          .mtu = mtu_.load(std::memory_order_relaxed)};
}

PathReport sum(const LanePaths& paths, Nanos now) noexcept {
  PathReport all;
  for (const PathMonitor& path : paths) all += path.report(now);
  return all;
}

std::optional<std::string> PathWatch::add_losses(const PathReport& total, Nanos now) {
  if (began_at_ != 0 && now - began_at_ < kWindow) return std::nullopt;
  const PathReport from = std::exchange(begin_, total);
  const Nanos time = now - std::exchange(began_at_, now);
  const uint64_t packets = total.packets - std::min(from.packets, total.packets);
  const uint64_t lost = total.lost_packets - std::min(from.lost_packets, total.lost_packets);
  const double share = static_cast<double>(lost) / static_cast<double>(std::max<uint64_t>(packets, 1));
  if (time == now || lost < kLeastLosses || share < kLossShare) return std::nullopt;
  if (losses_logged_at_ != 0 && now - losses_logged_at_ < kRepeat) return std::nullopt;
  losses_logged_at_ = now;
  std::array<char, 96> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f %% of %llu packets were lost within %lld s",
                      100 * std::min(share, 1.0), static_cast<unsigned long long>(packets),
                      static_cast<long long>(time / kSecond));
  return text.data();
}

bool PathWatch::is_new_stall(Nanos stalled, Nanos now) noexcept {
  if (stalled < kStall) is_stall_logged_ = false;
  if (stalled < kStall || is_stall_logged_) return false;
  if (stall_logged_at_ != 0 && now - stall_logged_at_ < kRepeat) return false;
  stall_logged_at_ = now;
  return is_stall_logged_ = true;
}

}  // namespace sluice::transport
