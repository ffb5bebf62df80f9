#include "reducer/fair/fair_shares.h"

#include <algorithm>
#include <utility>

namespace sluice::reducer {
namespace {

constexpr double seconds(Nanos time) {
  return 1e-9 * static_cast<double>(time);
}

// A session is no longer modest if its rate has grown by this factor and by this fraction of the capacity.
constexpr double kGrowthFactor = 1.25;
constexpr double kGrowthOfCapacity = 0.05;
// An unlimited rate below this fraction of the capacity replaces the capacity instead of being averaged.
constexpr double kCapacityDrop = 0.8;

}  // namespace

void FairShares::add(Member& member) {
  member.time = floor_;
  for (const Meter* meter : member.meters) member.served += meter->served();
  if (++member_count_ > engaged_.capacity()) engaged_.reserve(2 * member_count_);
  for (Meter* meter : member.meters) {
    meter->report_to(arrivals_, member);
    meter->watch();
  }
}

void FairShares::remove(Member& member) noexcept {
  member.has_arrived.store(true, std::memory_order_relaxed);  // so that it arrives no more
  engage_arrivals();                                          // it may have
  remove_limits(member);
  --member_count_;
  std::erase(engaged_, &member);
}

void FairShares::engage_arrivals() noexcept {
  arrivals_.take_all([this](ArrivalList::Entry& entry) {
    auto& m = static_cast<Member&>(entry);
    if (std::exchange(m.capacity_drops, capacity_drops_) != capacity_drops_) m.modest_period = kModestPeriod;
    engaged_.push_back(&m);
  });
}

void FairShares::disengage_idle(Nanos now) noexcept {
  std::erase_if(engaged_, [&](Member* m) {
    if (m->active || m->held || m->modest || now - m->last_active < kClaimExpiry) return false;
    m->has_arrived.store(false, std::memory_order_release);
    for (Meter* meter : m->meters) meter->watch();
    return true;
  });
}

// The sessions of one account share its weight, so that opening more sessions gains nothing.
double FairShares::weight_of(const Member& m) noexcept {
  return static_cast<double>(m.account->weight) / std::max(m.account->active, 1U);
}

void FairShares::remove_limits(Member& m) noexcept {
  for (Meter* meter : m.meters) meter->set_limit(Meter::kNoLimit);
  m.held = m.borrows = false;
}

void FairShares::remove_all_limits() noexcept {
  for (Member* m : engaged_) remove_limits(*m);
  bucket_ = 0;
}

void FairShares::update(Nanos now) noexcept {
  if (last_update_ == 0 || now <= last_update_) {
    last_update_ = std::max(last_update_, now);
    return;
  }
  const Nanos elapsed = now - last_update_;
  last_update_ = now;
  engage_arrivals();
  const Interval t = measure(now, elapsed);
  disengage_idle(now);
  contended_ = t.active >= 2;
  raise_floor(t, now);
  if (!contended_) return remove_all_limits();
  if (settle_left_ > 0) {
    settle_left_ -= elapsed;
  } else {
    window_time_ += elapsed;
    window_bytes_ += t.moved;
  }
  const bool enough = window_time_ >= kWindow && window_bytes_ >= kWindowInflightFactor * t.inflight_bytes;
  if (enough || window_time_ >= kMaxWindow) end_window(now);
  if (window_index_ == 0 || capacity_ <= 0) return remove_all_limits();
  limit_members(t, elapsed);
}

void FairShares::raise_floor(const Interval& t, Nanos now) noexcept {
  double last = -1;
  double first = 0;
  for (const Member* m : engaged_) {
    if (m->last_active == 0 || now - m->last_active >= kClaimExpiry || m->modest) continue;
    if (last < 0 || m->time < last) last = m->time;
    first = std::max(first, m->time);
  }
  if (last < 0) return;
  const double max_debt = seconds(kMaxDebt) * capacity_ / std::max(t.weights, 1.0);
  floor_ = std::max({floor_, last, first - max_debt});
}

FairShares::Interval FairShares::measure(Nanos now, Nanos elapsed) noexcept {
  Interval t;
  for (Member* m : engaged_) {
    if (m->active) t.largest_chunk = std::max(t.largest_chunk, static_cast<double>(m->chunk_bytes));
  }
  const double chunk_time = capacity_ > 0 ? t.largest_chunk / capacity_ : 0;
  const auto idle_after = capacity_ > 0
                              ? std::max(kIdleAfter, static_cast<Nanos>(1e9 * kIdleAfterChunks * chunk_time))
                              : kIdleAfterUnmeasured;
  for (Member* m : engaged_) m->account->active = 0;
  for (Member* m : engaged_) {
    uint64_t served = 0;
    bool waits = false;
    for (const Meter* meter : m->meters) {
      served += meter->served();
      waits |= meter->held();
    }
    m->moved = served - m->served;
    m->served = served;
    if (contended_ && settle_left_ <= 0) m->window_bytes += m->moved;
    t.moved += static_cast<double>(m->moved);
    if (m->borrows) borrowed_bytes_ += static_cast<double>(m->moved);
    if (waits) m->held_time += elapsed;
    if (m->moved > 0 || waits) m->last_active = now;
    const bool active = m->last_active != 0 && now - m->last_active < idle_after;
    // A session that returns after kClaimExpiry has no claim to the share that it did not use.
    if (active && !m->active) m->time = std::max(m->time, floor_);
    m->active = active;
    if (!active) continue;
    ++t.active;
    t.inflight_bytes += static_cast<double>(m->inflight_bytes);
    ++m->account->active;
  }
  for (Member* m : engaged_) {
    if (!m->active) continue;
    t.weights += weight_of(*m);
    m->time += static_cast<double>(m->moved) / weight_of(*m);
  }
  return t;
}

void FairShares::end_window(Nanos now) noexcept {
  const double rate = window_bytes_ / seconds(window_time_);
  if (held_in_window_) {
    const bool underused = borrowed_bytes_ > kMaxBorrowed * window_bytes_;
    underused_windows_ = underused ? underused_windows_ + 1 : 0;
    if (!underused) capacity_ += (rate - capacity_) / 8;
  } else if (rate < kCapacityDrop * capacity_) {
    // The capacity has dropped, so sessions that were marked modest by the old one may not be modest.
    capacity_ = rate;
    ++capacity_drops_;
    for (Member* m : engaged_) {
      m->modest_until = now, m->modest_period = kModestPeriod;
      m->capacity_drops = capacity_drops_;
    }
  } else {
    capacity_ = capacity_ > 0 ? (capacity_ + rate) / 2 : rate;
  }
  const bool underused = underused_windows_ >= kUnderusedWindows;
  if (underused) mark_modest(now);
  for (Member* m : engaged_) reevaluate(*m, now);
  window_index_ = (window_index_ + 1) % kWindowsPerCycle;
  // Held results leave in a burst when a limit is removed; that burst must not count as capacity.
  settle_left_ = underused || window_index_ == 0 ? kSettle : 0;
  window_time_ = 0;
  window_bytes_ = borrowed_bytes_ = 0;
  held_in_window_ = false;
}

// Marks the sessions that others were held for although the total rate fell: they cannot or need not move
// more.
void FairShares::mark_modest(Nanos now) noexcept {
  underused_windows_ = 0;
  for (Member* m : engaged_) {
    if (!m->active || m->modest || m->window_held > window_time_ / 10) continue;
    m->modest = true;
    m->modest_until = now + m->modest_period;
    m->modest_period = std::min(2 * m->modest_period, kMaxModestPeriod);
    m->modest_rate = static_cast<double>(m->window_bytes) / seconds(window_time_);
    m->windows_behind = 0;
  }
}

void FairShares::reevaluate(Member& m, Nanos now) noexcept {
  const double rate = static_cast<double>(m.window_bytes) / seconds(window_time_);
  m.window_bytes = 0;
  m.window_held = 0;
  if (!m.modest) {
    if (m.active && !m.held && ++m.windows_behind >= kWindowsPerCycle) m.modest_period = kModestPeriod;
    return;
  }
  const bool grown =
      rate > kGrowthFactor * m.modest_rate && rate - m.modest_rate > kGrowthOfCapacity * capacity_;
  if (!grown && now < m.modest_until) return;
  m.modest = false;
  m.time = std::max(m.time, floor_);
}

void FairShares::limit_members(const Interval& t, Nanos elapsed) noexcept {
  const auto competes = [](const Member* m) { return m->active && !m->modest; };
  double last = -1;
  for (Member* m : engaged_) {
    if (!competes(m)) continue;
    m->time = std::max(m->time, floor_);
    if (last < 0 || m->time < last) last = m->time;
  }
  if (last < 0) return remove_all_limits();
  const double burst = std::max(2 * t.largest_chunk, 2 * seconds(kUpdateInterval) * capacity_);
  const double memory = std::max(burst, seconds(kUtilizationMemory) * capacity_);
  bucket_ = std::clamp(bucket_ + kMinUtilization * capacity_ * seconds(elapsed) - t.moved, -memory, burst);
  // The session behind may move up to its share before the next update. A session that is less than that
  // ahead stays unlimited, and may be further ahead at the next update.
  const double ahead = last + 2 * seconds(kUpdateInterval) * capacity_ / t.weights;
  double held_weights = 0;
  for (Member* m : engaged_) {
    m->held = m->active && m->time > ahead;
    if (!m->held) continue;
    held_weights += weight_of(*m);
    held_in_window_ = true;
    m->window_held += elapsed;
  }
  for (Member* m : engaged_) {
    if (!m->held) {
      remove_limits(*m);
      continue;
    }
    m->borrows = bucket_ > 0;
    const auto room = m->borrows ? static_cast<uint64_t>(bucket_ * weight_of(*m) / held_weights) : 0;
    for (Meter* meter : m->meters) meter->set_limit(meter->served() + room);
  }
}

}  // namespace sluice::reducer
