// Who may go how far when several sessions want more than the reducer, or its link, can carry: weighted
// shares by virtual time. docs/adr/0009, docs/fair-pool.md.
//
// A result is the credit for a session's next contribution, so a session whose results wait slows down both
// ways, wherever the narrow place is. Each session's virtual time is what it has moved over its weight. One
// that is ahead of the session that is furthest behind is held back until that one has caught up.
//
// That must not waste what the one behind does not want. How much all move together while nobody is held is
// measured now and then; where less than nearly as much is moved while some are held, the rest is lent to
// them, and when that goes on the sessions behind are modest: for a while nobody is held for them. A session
// that moves nothing at all for a short time is not waited for.
//
// No threads, no clock of its own; FairPool is the one that lanes and conductor share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/units.h"
#include "reducer/fair/meter.h"

namespace sluice::reducer {

// Whose sessions share one weight.
struct FairAccount {
  uint32_t weight = 1;
  uint32_t active = 0;  // its sessions that move something; FairShares'
};

class FairShares {
 public:
  // Between two turns.
  static constexpr Nanos kTurn = 5 * kMillisecond;
  // A session that moves nothing for so long, or for the time that so many chunks take, wants nothing.
  static constexpr Nanos kPatience = 20 * kMillisecond;
  static constexpr double kPatienceChunks = 16;
  // It is not waited for, but keeps its claim to its part of that time if it comes back within this: TCP
  // stands still for 200 ms, then for 400, when the last packets that were sent are lost.
  static constexpr Nanos kRecall = 700 * kMillisecond;
  // What is moved is measured over windows, of time in which two or more want something: at least so long,
  // and so many times what they may have under way, since that comes in bursts; but at most ...
  static constexpr Nanos kWindow = 500 * kMillisecond, kMostWindow = 4 * kSecond;
  static constexpr double kWindowTimes = 2;
  // One window of so many holds nobody back, after a while in which what was held goes.
  static constexpr uint32_t kCycle = 32;
  static constexpr Nanos kSettle = 250 * kMillisecond, kFirstSettle = 1 * kSecond;
  // Of what was moved in such a window, what must be moved in the others; what was moved more within the last
  // kMemory makes up for less.
  static constexpr double kBusy = 0.8;
  static constexpr Nanos kMemory = 250 * kMillisecond;
  // Of what is moved in a window, what may be lent; after so many windows with more, one after the other,
  // those behind are modest. One alone may be a lost packet's doing.
  static constexpr double kLent = 0.1;
  static constexpr uint32_t kLean = 2;
  // How long they are; doubles from time to time.
  static constexpr Nanos kModest = 2 * kSecond, kMostModest = 64 * kSecond;
  // No session is owed more than this much time of the whole.
  static constexpr Nanos kMostLag = 3 * kSecond;

  struct Member {
    // ---- given ----
    FairAccount* account = nullptr;
    std::vector<Meter*> meters;  // one per lane
    uint64_t under_way = 0;      // most that its slots hold
    uint64_t chunk_bytes = 0;    // most that one result moves
    // ---- FairShares' ----
    double time = 0;  // virtual
    uint64_t served = 0;
    uint64_t moved = 0;  // in the last turn
    Nanos moved_at = 0;
    uint64_t window_bytes = 0;
    Nanos window_held = 0;
    bool active = false;
    bool held = false;  // or would be if it had something
    bool lent = false;  // held, but for what others leave
    bool modest = false;
    Nanos modest_until = 0;
    Nanos modest_for = kModest;
    double modest_rate = 0;  // bytes a second at which it was found to be
    uint32_t windows_behind = 0;
    Nanos held_for = 0;  // in all
  };

  // `member` and what it names stay where they are until it is removed.
  void add(Member& member);
  void remove(Member& member) noexcept;  // its limits are lifted

  void turn(Nanos now) noexcept;

  [[nodiscard]] double bytes_per_second() const noexcept { return capacity_; }  // 0: not known
  [[nodiscard]] std::span<Member* const> members() const noexcept { return members_; }

 private:
  struct Turn {
    double moved = 0;
    double weights = 0;  // of active sessions
    uint32_t active = 0;
    double largest_chunk = 0;
    double under_way = 0;
  };
  [[nodiscard]] Turn take_stock(Nanos now) noexcept;
  void raise_floor(const Turn& turn, Nanos now) noexcept;
  void end_window(Nanos now) noexcept;
  void mark_modest(Nanos now) noexcept;
  void reconsider(Member& m, Nanos now) noexcept;
  void hold(const Turn& turn, double seconds) noexcept;
  void lift_all() noexcept;
  [[nodiscard]] static double weight_of(const Member& m) noexcept;
  static void lift(Member& m) noexcept;

  std::vector<Member*> members_;
  Nanos last_ = 0;
  double floor_ = 0;        // virtual time of who is furthest behind of those that have a claim
  double capacity_ = 0;     // bytes a second that all move when nobody is held
  double bucket_ = 0;       // bytes that may be lent; below 0 more was moved than had to be
  bool contended_ = false;  // two or more want something
  // Of the present window.
  Nanos settles_ = kFirstSettle;  // before it begins
  Nanos window_time_ = 0;
  bool held_in_window_ = false;
  double window_bytes_ = 0;
  double lent_bytes_ = 0;
  uint32_t lean_windows_ = 0;  // one after the other
  uint32_t window_ = 0;        // number in the cycle; 0 holds nobody
};

}  // namespace sluice::reducer
