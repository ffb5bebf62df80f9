#include "gpu_client/engine/membership/link_meter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "wire/view.h"

namespace sluice::engine {
namespace {

// Busy time after a raise in which a new loss of rate shows that the raise was wrong. Later it is a new
// event.
constexpr Nanos kRaiseTrial = 8 * kSecond;
constexpr size_t kRun = 3;  // intervals in a row that show what a link carries
constexpr Nanos kFirstWait = 4 * kSecond;
constexpr Nanos kMostWait = 128 * kSecond;
constexpr Nanos kSpareWaits = 3;    // more waits before a raise because of spare capacity
constexpr double kSaturated = 0.5;  // least part of the busy time in which the network limits a slow link
constexpr double kSpare = 0.6;      // most, in which it limits a link with capacity to spare
constexpr double kMore = 1.1;     // what it then carries over what it carried before it was lowered, at least
constexpr double kFaster = 1.05;  // least gain that lowering a rate must bring

// The part of all waits from which on the others wait for a rank. Equal ranks cause 1/n each. In large
// sessions chance alone exceeds 1.25/n, so four or five ranks can be found slow at a time there.
double slow_part(uint32_t ranks) noexcept {
  return std::max(1.25 / ranks, 0.2);
}

// Two digits: neighboring measurements give the same rate, and the placement has a short period.
uint64_t round_rate(double rate) noexcept {
  const auto whole = static_cast<uint64_t>(rate);
  uint64_t unit = 1;
  while (whole / unit >= 100) unit *= 10;
  return std::max((whole + unit / 2) / unit * unit, wire::kMinLinkRate);
}

double per_second(uint64_t bytes, Nanos time) noexcept {
  return static_cast<double>(bytes) * static_cast<double>(kSecond) /
         static_cast<double>(std::max<Nanos>(time, 1));
}

Nanos double_wait(Nanos wait) noexcept {
  return std::clamp(2 * wait, kFirstWait, kMostWait);
}

}  // namespace

void LinkMeter::restart() noexcept {
  last_.reset();
  count_ = 0;
}

LinkMeter::Interval LinkMeter::difference(const Sample& from, const Sample& to) noexcept {
  Interval d{.busy = to.busy - from.busy,
             .bytes = to.bytes - from.bytes,
             .results = to.results - from.results,
             .own_wait_us = to.own_wait_us - from.own_wait_us,
             .all_wait_us = to.all_wait_us - from.all_wait_us};
  const size_t count = std::min(from.connections.size(), to.connections.size());
  uint64_t most = 0;
  for (size_t i = 0; i < count; ++i)
    most = std::max(most, to.connections[i].bytes - from.connections[i].bytes);
  Nanos least = std::numeric_limits<Nanos>::max();
  for (size_t i = 0; i < count && most > 0; ++i) {
    if (to.connections[i].bytes - from.connections[i].bytes < most / 2) continue;
    // Less than before: the connection was opened again.
    least = std::min(
        least, std::max<Nanos>(to.connections[i].network_limited - from.connections[i].network_limited, 0));
  }
  d.network_limited = most > 0 ? least : 0;
  return d;
}

std::optional<uint64_t> LinkMeter::add(Sample sample, uint64_t rate, bool has_share) {
  busy_ = sample.busy;
  if (!last_) {
    last_ = std::move(sample);
    return std::nullopt;
  }
  const Interval now = difference(*last_, sample);
  if (now.busy < kInterval / 2) return std::nullopt;  // goes on until there is more to judge
  last_ = std::move(sample);
  intervals_[count_++ % kIntervals] = now;
  if (count_ >= kIntervals) most_carried_ = std::max(most_carried_, carried());
  return trial_ ? end_trial(now) : judge(rate, has_share);
}

// Bytes per second in the fastest of the runs of kRun intervals: packets may have been lost in the others,
// and a single interval may have filled the kernel's buffers only.
double LinkMeter::carried() const noexcept {
  double most = 0;
  for (size_t begin = 0; begin + kRun <= kIntervals; ++begin) {
    Interval run;
    for (size_t i = begin; i < begin + kRun; ++i) {
      const Interval& interval =
          intervals_[(count_ + i) % kIntervals];  // the oldest is at count_ % kIntervals
      run.bytes += interval.bytes;
      run.busy += interval.busy;
    }
    most = std::max(most, per_second(run.bytes, run.busy));
  }
  return most;
}

// A single interval may be slow for another reason, so the best one counts.
std::optional<uint64_t> LinkMeter::end_trial(const Interval& last) noexcept {
  trial_->results_best = std::max(trial_->results_best, per_second(last.results, last.busy));
  if (++trial_->intervals < kIntervals) return std::nullopt;
  const Trial trial = *std::exchange(trial_, std::nullopt);
  if (trial.results_best >= kFaster * trial.results_before) {
    lower_wait_ = 0;
    return std::nullopt;
  }
  lower_wait_ = double_wait(lower_wait_);
  next_lower_ = busy_ + lower_wait_;
  restart();
  return trial.rate_before;
}

std::optional<uint64_t> LinkMeter::judge(uint64_t rate, bool has_share) noexcept {
  if (count_ < kIntervals) return std::nullopt;
  // Of what the view says about all links, this link may never have carried as much.
  const double capacity = std::min(most_carried_, static_cast<double>(rate) / 8);
  Interval sum;
  bool all_slow = true;
  for (const Interval& i : intervals_) {
    all_slow = all_slow && per_second(i.bytes, i.busy) <= kSlow * capacity;
    sum.busy += i.busy;
    sum.network_limited += i.network_limited;
    sum.bytes += i.bytes;
    sum.results += i.results;
    sum.own_wait_us += i.own_wait_us;
    sum.all_wait_us += i.all_wait_us;
  }
  const double limited = static_cast<double>(sum.network_limited) / static_cast<double>(sum.busy);
  const bool waited_for =
      static_cast<double>(sum.own_wait_us) > slow_part(ranks_) * static_cast<double>(sum.all_wait_us);
  if (has_share && busy_ >= next_lower_ && all_slow && waited_for && limited >= kSaturated)
    return lower(sum, rate, capacity);
  const bool is_spare = limited <= kSpare && !waited_for;
  const bool carries_more = carried() >= kMore * slow_carried_;
  // Spare capacity may be a moment's; carried bytes are a fact.
  if (rate < first_rate_ && ((carries_more && busy_ >= next_raise_) ||
                             (is_spare && busy_ >= next_raise_ + kSpareWaits * raise_wait_)))
    return raise(rate);
  return std::nullopt;
}

std::optional<uint64_t> LinkMeter::lower(const Interval& sum, uint64_t rate, double capacity) noexcept {
  const bool vain_raise = raised_at_ >= 0 && busy_ - raised_at_ < kRaiseTrial;
  raise_wait_ = vain_raise ? double_wait(raise_wait_) : 0;
  next_raise_ = busy_ + raise_wait_;
  slow_carried_ = carried();
  trial_ = {.rate_before = rate, .results_before = per_second(sum.results, sum.busy)};
  restart();
  return round_rate(static_cast<double>(rate) * std::max(slow_carried_ / capacity, 0.5));
}

std::optional<uint64_t> LinkMeter::raise(uint64_t rate) noexcept {
  raised_at_ = busy_;
  restart();
  return std::min(2 * rate, first_rate_);
}

}  // namespace sluice::engine
