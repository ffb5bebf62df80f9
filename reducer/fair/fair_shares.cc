#include "reducer/fair/fair_shares.h"

#include <algorithm>

namespace sluice::reducer {
namespace {

constexpr double seconds(Nanos time) {
  return 1e-9 * static_cast<double>(time);
}

// A turn that comes late, because all lanes slept, counts as no more than this.
constexpr Nanos kMostTurn = 4 * FairShares::kTurn;
// A session that was modest is no longer when it moves so much more, and by so much of the whole.
constexpr double kMoreThanModest = 1.25;
constexpr double kOfTheWhole = 0.05;
// A link that carries so much of what it did is another one.
constexpr double kLess = 0.8;

}  // namespace

void FairShares::add(Member& member) {
  member.time = floor_;
  for (const Meter* meter : member.meters) member.served += meter->served();
  members_.push_back(&member);
}

void FairShares::remove(Member& member) noexcept {
  lift(member);
  std::erase(members_, &member);
}

// Sessions of one account share its weight, so that opening more of them gains nothing.
double FairShares::weight_of(const Member& m) noexcept {
  return static_cast<double>(m.account->weight) / std::max(m.account->active, 1U);
}

void FairShares::lift(Member& m) noexcept {
  for (Meter* meter : m.meters) meter->set_limit(Meter::kNoLimit);
  m.held = m.lent = false;
}

void FairShares::lift_all() noexcept {
  for (Member* m : members_) lift(*m);
  bucket_ = 0;
}

void FairShares::turn(Nanos now) noexcept {
  if (last_ == 0 || now <= last_) {
    last_ = std::max(last_, now);
    return;
  }
  const Nanos elapsed = std::min(now - last_, kMostTurn);
  last_ = now;
  const Turn t = take_stock(now);
  contended_ = t.active >= 2;
  raise_floor(t, now);
  if (!contended_) return lift_all();
  if (settles_ > 0) {
    settles_ -= elapsed;
  } else {
    window_time_ += elapsed;
    window_bytes_ += t.moved;
  }
  const bool enough = window_time_ >= kWindow && window_bytes_ >= kWindowTimes * t.under_way;
  if (enough || window_time_ >= kMostWindow) end_window(now);
  if (window_ == 0 || capacity_ <= 0) return lift_all();
  hold(t, seconds(elapsed));
}

void FairShares::raise_floor(const Turn& t, Nanos now) noexcept {
  double last = -1;
  double first = 0;
  for (const Member* m : members_) {
    if (m->moved_at == 0 || now - m->moved_at >= kRecall || m->modest) continue;
    if (last < 0 || m->time < last) last = m->time;
    first = std::max(first, m->time);
  }
  if (last < 0) return;
  const double most_lag = seconds(kMostLag) * capacity_ / std::max(t.weights, 1.0);
  floor_ = std::max({floor_, last, first - most_lag});
}

FairShares::Turn FairShares::take_stock(Nanos now) noexcept {
  Turn t;
  for (Member* m : members_) {
    if (m->active) t.largest_chunk = std::max(t.largest_chunk, static_cast<double>(m->chunk_bytes));
  }
  const double chunk_time = capacity_ > 0 ? t.largest_chunk / capacity_ : 0;
  const auto patience = std::max(kPatience, static_cast<Nanos>(1e9 * kPatienceChunks * chunk_time));
  for (Member* m : members_) m->account->active = 0;
  for (Member* m : members_) {
    uint64_t served = 0;
    bool waits = false;
    for (const Meter* meter : m->meters) {
      served += meter->served();
      waits |= meter->held();
    }
    m->moved = served - m->served;
    m->served = served;
    if (contended_ && settles_ <= 0) m->window_bytes += m->moved;
    t.moved += static_cast<double>(m->moved);
    if (m->lent) lent_bytes_ += static_cast<double>(m->moved);
    if (waits) m->held_for += kTurn;
    if (m->moved > 0 || waits) m->moved_at = now;
    const bool active = m->moved_at != 0 && now - m->moved_at < patience;
    // Who comes back after long has no claim to what it did not want meanwhile.
    if (active && !m->active) m->time = std::max(m->time, floor_);
    m->active = active;
    if (!active) continue;
    ++t.active;
    t.under_way += static_cast<double>(m->under_way);
    ++m->account->active;
  }
  for (Member* m : members_) {
    if (!m->active) continue;
    t.weights += weight_of(*m);
    m->time += static_cast<double>(m->moved) / weight_of(*m);
  }
  return t;
}

void FairShares::end_window(Nanos now) noexcept {
  const double rate = window_bytes_ / seconds(window_time_);
  if (held_in_window_) {
    const bool lean = lent_bytes_ > kLent * window_bytes_;
    lean_windows_ = lean ? lean_windows_ + 1 : 0;
    if (!lean) capacity_ += (rate - capacity_) / 8;
  } else if (rate < kLess * capacity_) {
    // Less can be carried than was thought. Who was found modest by that may not be.
    capacity_ = rate;
    for (Member* m : members_) m->modest_until = now, m->modest_for = kModest;
  } else {
    capacity_ = capacity_ > 0 ? (capacity_ + rate) / 2 : rate;
  }
  const bool lean = lean_windows_ >= kLean;
  if (lean) mark_modest(now);
  for (Member* m : members_) reconsider(*m, now);
  window_ = (window_ + 1) % kCycle;
  // What was held goes at once when it is let go: that is no measure of what can be carried.
  settles_ = lean || window_ == 0 ? kSettle : 0;
  window_time_ = 0;
  window_bytes_ = lent_bytes_ = 0;
  held_in_window_ = false;
}

// Others were held for them, and together less was moved for it: these can't do more, or don't want to.
void FairShares::mark_modest(Nanos now) noexcept {
  lean_windows_ = 0;
  for (Member* m : members_) {
    if (!m->active || m->modest || m->window_held > window_time_ / 10) continue;
    m->modest = true;
    m->modest_until = now + m->modest_for;
    m->modest_for = std::min(2 * m->modest_for, kMostModest);
    m->modest_rate = static_cast<double>(m->window_bytes) / seconds(window_time_);
    m->windows_behind = 0;
  }
}

void FairShares::reconsider(Member& m, Nanos now) noexcept {
  const double rate = static_cast<double>(m.window_bytes) / seconds(window_time_);
  m.window_bytes = 0;
  m.window_held = 0;
  if (!m.modest) {
    if (m.active && !m.held && ++m.windows_behind >= kCycle) m.modest_for = kModest;
    return;
  }
  const bool grown = rate > kMoreThanModest * m.modest_rate && rate - m.modest_rate > kOfTheWhole * capacity_;
  if (!grown && now < m.modest_until) return;
  m.modest = false;
  m.time = std::max(m.time, floor_);
}

void FairShares::hold(const Turn& t, double elapsed) noexcept {
  const auto hungry = [](const Member* m) { return m->active && !m->modest; };
  double last = -1;
  for (Member* m : members_) {
    if (!hungry(m)) continue;
    m->time = std::max(m->time, floor_);
    if (last < 0 || m->time < last) last = m->time;
  }
  if (last < 0) return lift_all();
  const double burst = std::max(2 * t.largest_chunk, 2 * seconds(kTurn) * capacity_);
  const double memory = std::max(burst, seconds(kMemory) * capacity_);
  bucket_ = std::clamp(bucket_ + kBusy * capacity_ * elapsed - t.moved, -memory, burst);
  // What the one behind does until the next turn is not known yet: as much as its share. Who is not that far
  // ahead goes on without limit, and may be further ahead for it at the next turn.
  const double ahead = last + 2 * seconds(kTurn) * capacity_ / t.weights;
  double held_weights = 0;
  for (Member* m : members_) {
    m->held = m->active && m->time > ahead;
    if (!m->held) continue;
    held_weights += weight_of(*m);
    held_in_window_ = true;
    m->window_held += kTurn;
  }
  for (Member* m : members_) {
    if (!m->held) {
      lift(*m);
      continue;
    }
    m->lent = bucket_ > 0;
    const auto room = m->lent ? static_cast<uint64_t>(bucket_ * weight_of(*m) / held_weights) : 0;
    for (Meter* meter : m->meters) meter->set_limit(meter->served() + room);
  }
}

}  // namespace sluice::reducer
