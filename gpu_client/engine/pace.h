// How many chunks each lane connection may have under way: the W slots it was granted, or fewer where more
// gain nothing.
//
// A star is an incast: n workers send to one reducer's port at the same moment, and every reducer to a
// worker's, over connections that share a host's own queue. What overflows a queue is lost, and a packet lost
// at the end of a burst is found by a timer only, 200 ms and more with Linux; the chunk it belongs to, hence
// the operation, waits on every rank. So the bytes under way must fit into queues whose depth nobody tells,
// and a queue of the own host does not even tell that it dropped something. All that are under way,
// contributions and results, are bounded by the chunks that lack a result: so here is the place to bound
// them.
//
// Rule: the least limit at which results come about as fast as they can. Begin low and double as long as that
// gains; try half, and keep it unless that is slower, also when packets were lost, then even for somewhat
// less speed. Between trials wait; each trial in vain doubles the wait. Each rank does this for itself; who
// allows itself least sets the pace of all, since a chunk needs everybody.
//
// Speed is results over the time in which operations were open, from the first result on: how late a rank
// comes does not count. Stretches in which the limit held nothing back teach nothing and are left out.
#pragma once

#include <cstdint>

#include "core/units.h"

namespace sluice::engine {

class Pace {
 public:
  static constexpr uint32_t kLeast = 2;  // one on the way up while one is on the way down
  // In rounds: as many results as may be under way on all connections.
  static constexpr uint64_t kTrial = 16;    // by which a limit is judged
  static constexpr uint64_t kStretch = 64;  // after which an operation that goes on is judged too
  static constexpr uint64_t kShortestWait = 512;
  static constexpr uint64_t kLongestWait = 8192;
  // Speed of a limit beside that of the one before it.
  static constexpr double kGain = 1.05;       // worth twice the bytes
  static constexpr double kSame = 0.98;       // half the bytes are enough
  static constexpr double kTolerable = 0.75;  // half the bytes when packets are lost

  // `links` connections; none is granted more than `most` slots.
  Pace(uint32_t links, uint32_t most) noexcept;

  // Chunks per connection.
  [[nodiscard]] uint32_t limit() const noexcept { return limit_; }

  // A chunk could have gone but for the limit.
  void held_back() noexcept { held_back_ = true; }
  // The result of a chunk is here.
  void result(Nanos now) noexcept;
  // No operation is open any more.
  void idle(Nanos now) noexcept;
  // Packets were lost on some connection.
  void lost() noexcept;

 private:
  enum class State : uint8_t { kRising, kFalling, kFallingForLosses, kWaiting };

  void end_stretch(Nanos now) noexcept;
  void judge(double speed) noexcept;
  void try_more(double speed) noexcept;
  void try_less(State why, double speed) noexcept;
  void wait_at(uint32_t limit) noexcept;
  void set(State state, uint32_t limit) noexcept;
  [[nodiscard]] uint64_t round() const noexcept { return uint64_t{limit_} * links_; }

  const uint64_t links_;
  const uint32_t most_;
  uint32_t limit_;
  State state_ = State::kRising;
  bool less_next_ = false;  // what the next trial tries
  bool immune_ = false;     // less was too slow: losses mean nothing until the wait is over
  double before_ = 0;       // speed at the limit before the trial; 0: there was none
  uint64_t wait_ = kShortestWait;

  bool busy_ = false;  // since began_ results have come and operations were open
  bool held_back_ = false;
  Nanos began_ = 0;
  uint64_t results_ = 0;  // since began_
  // Of earlier stretches at this limit.
  Nanos time_ = 0;
  uint64_t total_ = 0;
  Nanos patience_ = INT64_MAX;  // a trial that takes longer is over: it makes things much worse
};

}  // namespace sluice::engine
