// Class LinkMeter decides when the rate of this rank's link has to change in the view, because the link has
// become slow, or fast again (protocol.md section 11; docs/design/failures.md).
//
// Only the ratios of the ranks' rates matter for the shares. A link counts as slow after kIntervals intervals
// of kInterval each, if
//   - the network limited all connections that carried much. A slow link of another rank limits only the
//     connections to that rank, and a late or busy process limits none;
//   - in each interval the link carried at most kSlow of what it can carry, by the view and by what it has
//     carried before. Lost packets and new in-flight limits slow a healthy link for less time;
//   - the other ranks waited for this rank more than equal ranks wait for each other.
// The rate then falls in proportion, but at most to half. Unless operations become faster, it returns: the
// whole network may be slow. Each such mistake doubles the time until the next attempt.
//
// A lowered rate doubles, up to the first one, once the link has capacity to spare: the network no longer
// limits it and the others do not wait for it. A rate that must be lowered again soon doubles the time until
// the next raise.
//
// A session without operations has no busy time, so it changes nothing.
//
// One thread. No clock: samples have their time. No errors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/units.h"

namespace sluice::engine {

class LinkMeter {
 public:
  static constexpr Nanos kInterval = 500 * kMillisecond;  // between samples
  static constexpr size_t kIntervals = 4;                 // that agree before a change
  static constexpr double kSlow = 0.8;

  // All numbers are sums since the session began.
  struct Sample {
    struct Connection {
      uint64_t bytes = 0;         // sent
      Nanos network_limited = 0;  // transport::Endpoint::network_limited_time()
    };
    Nanos busy = 0;                       // time with open operations
    uint64_t bytes = 0;                   // sent over the link
    uint64_t results = 0;                 // bytes of results
    uint64_t own_wait_us = 0;             // time that chunks waited for this rank's contribution
    uint64_t all_wait_us = 0;             // time that chunks waited for any rank's last contribution
    std::vector<Connection> connections;  // in an order that stays; new ones at the end
  };

  // `rate` is the rank's first rate in bits/s, of `ranks` ranks.
  LinkMeter(uint32_t ranks, uint64_t rate) noexcept : ranks_(ranks), first_rate_(rate) {}

  // `rate`: of this rank in the view. `has_share`: this rank's reducer sums chunks, so a lower rate would
  // relieve the link. Returns the new rate to be reported, if any.
  [[nodiscard]] std::optional<uint64_t> add(Sample sample, uint64_t rate, bool has_share);
  // The view changes: forgets the samples, because traffic stops and shares change.
  void restart() noexcept;

 private:
  struct Interval {
    Nanos busy = 0;
    Nanos network_limited = 0;  // least of the connections that carried much
    uint64_t bytes = 0;
    uint64_t results = 0;
    uint64_t own_wait_us = 0;
    uint64_t all_wait_us = 0;
  };
  // After the rate was lowered, until it is known whether that helped.
  struct Trial {
    uint64_t rate_before = 0;
    double results_before = 0;  // bytes per second
    double results_best = 0;    // of an interval since
    size_t intervals = 0;
  };

  [[nodiscard]] static Interval difference(const Sample& from, const Sample& to) noexcept;
  [[nodiscard]] double carried() const noexcept;
  [[nodiscard]] std::optional<uint64_t> end_trial(const Interval& last) noexcept;
  [[nodiscard]] std::optional<uint64_t> judge(uint64_t rate, bool has_share) noexcept;
  [[nodiscard]] std::optional<uint64_t> lower(const Interval& sum, uint64_t rate, double capacity) noexcept;
  [[nodiscard]] std::optional<uint64_t> raise(uint64_t rate) noexcept;

  const uint32_t ranks_;
  const uint64_t first_rate_;
  std::optional<Sample> last_;
  std::array<Interval, kIntervals> intervals_{};  // a ring
  size_t count_ = 0;                              // of intervals since restart()
  double most_carried_ = 0;                       // carried() of the session
  double slow_carried_ = 0;                       // carried() when the rate was lowered
  std::optional<Trial> trial_;
  Nanos busy_ = 0;  // of the last sample; times below are on this clock
  Nanos raised_at_ = -1;
  Nanos next_lower_ = 0, next_raise_ = 0;
  Nanos lower_wait_ = 0, raise_wait_ = 0;
};

}  // namespace sluice::engine
