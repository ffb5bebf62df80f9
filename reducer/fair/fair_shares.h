// Class FairShares divides a reducer's capacity among competing sessions by weighted virtual time.
//
// A result is the credit for a session's next contribution. So delaying results slows a session in both
// directions, wherever the bottleneck is. A session's virtual time is the bytes it has moved over its weight.
// A session that is ahead of the one furthest behind is limited until that one has caught up.
//
// Capacity must not be wasted on a session that does not use its share. The total rate without limits is
// measured periodically. While sessions are limited and the total stays below most of that rate, the limited
// sessions borrow the rest. If that continues, the sessions behind are marked modest: for a while no session
// is limited for them. A session that moves nothing for a short time is not waited for.
//
// docs/design/adr/0009, docs/guides/operate.md. Not thread-safe and without a clock: lanes and the control
// loop share it through FairPool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/units.h"
#include "reducer/fair/arrival_list.h"
#include "reducer/fair/meter.h"

namespace sluice::reducer {

// The sessions of one account share its weight.
struct FairAccount {
  uint32_t weight = 1;
  uint32_t active = 0;  // sessions that move bytes; set by FairShares
};

class FairShares {
 public:
  static constexpr Nanos kUpdateInterval = 5 * kMillisecond;
  // A session is idle after moving nothing for this time, or for the time that so many chunks take. How long
  // a chunk takes is not known before the first rate is measured.
  static constexpr Nanos kIdleAfter = 20 * kMillisecond, kIdleAfterUnmeasured = 100 * kMillisecond;
  static constexpr double kIdleAfterChunks = 16;
  // An idle session is not waited for, but keeps its claim to its share of that time until this expires. TCP
  // stalls for 200 ms, then for 400 ms, when the last packets of a burst are lost.
  static constexpr Nanos kClaimExpiry = 700 * kMillisecond;
  // Rates are measured over windows of contended time. A window lasts at least kWindow and until the bytes
  // moved reach a multiple of the bytes in flight, since those move in bursts; but at most kMaxWindow.
  static constexpr Nanos kWindow = 500 * kMillisecond, kMaxWindow = 4 * kSecond;
  static constexpr double kWindowInflightFactor = 2;
  // The first window of each cycle limits no session. It starts after a pause in which held results leave.
  static constexpr uint32_t kWindowsPerCycle = 32;
  static constexpr Nanos kSettle = 250 * kMillisecond, kInitialSettle = 1 * kSecond;
  // The fraction of the unlimited rate that windows with limits must reach. A surplus of the last
  // kUtilizationMemory compensates for a shortfall.
  static constexpr double kMinUtilization = 0.8;
  static constexpr Nanos kUtilizationMemory = 250 * kMillisecond;
  // The fraction of a window's bytes that may be borrowed. After kUnderusedWindows consecutive windows above
  // it the sessions behind are modest. One such window alone may be caused by a lost packet.
  static constexpr double kMaxBorrowed = 0.1;
  static constexpr uint32_t kUnderusedWindows = 2;
  // How long a session is modest at first; the period doubles each time, up to the maximum.
  static constexpr Nanos kModestPeriod = 2 * kSecond, kMaxModestPeriod = 64 * kSecond;
  // The most time of the whole capacity that a session may be owed.
  static constexpr Nanos kMaxDebt = 3 * kSecond;

  struct Member : ArrivalList::Entry {
    // ---- set by the owner ----
    FairAccount* account = nullptr;
    std::vector<Meter*> meters;   // one per lane
    uint64_t inflight_bytes = 0;  // capacity of the session's slots
    uint64_t chunk_bytes = 0;     // most bytes that one result moves
    // ---- set by FairShares ----
    double time = 0;  // virtual
    uint64_t served = 0;
    uint64_t moved = 0;     // bytes in the last interval
    Nanos last_active = 0;  // when it last moved bytes or waited for its limit
    uint64_t window_bytes = 0;
    Nanos window_held = 0;
    bool active = false;
    bool held = false;     // limited, even if it has nothing to move
    bool borrows = false;  // held, and may use what the others leave
    bool modest = false;
    Nanos modest_until = 0;
    Nanos modest_period = kModestPeriod;
    double modest_rate = 0;  // bytes/s at which it was marked modest
    uint32_t windows_behind = 0;
    uint32_t capacity_drops = 0;  // those that modest_period knows of
    Nanos held_time = 0;          // total
  };

  // `member` and its account and meters must keep their addresses until remove().
  void add(Member& member);
  void remove(Member& member) noexcept;  // also removes its limits

  // Due every kUpdateInterval while lanes move bytes. A later update after which bytes have moved means that
  // the lanes had no CPU time. The network went on meanwhile, so the whole time counts for rates.
  void update(Nanos now) noexcept;

  [[nodiscard]] double bytes_per_second() const noexcept { return capacity_; }  // 0: not measured yet
  // The members that an update looks at: all that are active, held or modest are among them.
  [[nodiscard]] std::span<Member* const> engaged() const noexcept { return engaged_; }

 private:
  // The activity of the members since the last update.
  struct Interval {
    double moved = 0;
    double weights = 0;  // of active sessions
    uint32_t active = 0;
    double largest_chunk = 0;
    double inflight_bytes = 0;
  };
  void engage_arrivals() noexcept;
  void disengage_idle(Nanos now) noexcept;
  [[nodiscard]] Interval measure(Nanos now, Nanos elapsed) noexcept;
  void raise_floor(const Interval& t, Nanos now) noexcept;
  void end_window(Nanos now) noexcept;
  void mark_modest(Nanos now) noexcept;
  void reevaluate(Member& m, Nanos now) noexcept;
  void limit_members(const Interval& t, Nanos elapsed) noexcept;
  void remove_all_limits() noexcept;
  [[nodiscard]] static double weight_of(const Member& m) noexcept;
  static void remove_limits(Member& m) noexcept;

  size_t member_count_ = 0;
  // Those that have moved bytes within kClaimExpiry, or are limited or modest. The others cost nothing. Has
  // room for all members.
  std::vector<Member*> engaged_;
  ArrivalList arrivals_;
  uint32_t capacity_drops_ = 0;
  Nanos last_update_ = 0;
  double floor_ = 0;        // virtual time of the session furthest behind, of those with a claim
  double capacity_ = 0;     // bytes/s that all sessions move without limits
  double bucket_ = 0;       // bytes that may be borrowed; negative after a surplus
  bool contended_ = false;  // two or more sessions are active
  // Of the current window:
  Nanos settle_left_ = kInitialSettle;  // pause before it starts
  Nanos window_time_ = 0;
  bool held_in_window_ = false;
  double window_bytes_ = 0;
  double borrowed_bytes_ = 0;
  uint32_t underused_windows_ = 0;  // consecutive
  uint32_t window_index_ = 0;       // in the cycle; window 0 has no limits
};

}  // namespace sluice::reducer
