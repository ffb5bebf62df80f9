#include "wire/membership_history.h"

#include <algorithm>

#include "wire/recovery_messages.h"
#include "wire/view.h"

namespace sluice::wire {
namespace {

bool insert(std::vector<uint64_t>& ascending, uint64_t id) {
  const auto at = std::ranges::lower_bound(ascending, id);
  if (at != ascending.end() && *at == id) return false;
  ascending.insert(at, id);
  return true;
}

bool contains(const std::vector<uint64_t>& ascending, uint64_t id) {
  return std::ranges::binary_search(ascending, id);
}

}  // namespace

bool MembershipHistory::add(uint64_t id) {
  return std::ranges::find(first_, id) == first_.end() && insert(added_, id);
}

bool MembershipHistory::remove(uint64_t id) {
  return insert(removed_, id);
}

bool MembershipHistory::confirm(uint64_t id) {
  return std::ranges::find(first_, id) == first_.end() && insert(confirmed_, id);
}

bool MembershipHistory::change_rate(const RateChange& change) {
  const auto at = std::ranges::lower_bound(rate_changes_, change.rank, {}, &RateChange::rank);
  if (at == rate_changes_.end() || at->rank != change.rank) {
    rate_changes_.insert(at, change);
    return true;
  }
  if (at->sequence >= change.sequence) return false;
  *at = change;
  return true;
}

bool MembershipHistory::merge(const MembershipHistory& other) {
  bool grown = false;
  for (const uint64_t id : other.added_) grown |= add(id);
  for (const uint64_t id : other.removed_) grown |= remove(id);
  for (const uint64_t id : other.confirmed_) grown |= confirm(id);
  for (const RateChange& change : other.rate_changes_) grown |= change_rate(change);
  return grown;
}

bool MembershipHistory::covers(const MembershipHistory& other) const {
  const auto has_rate = [this](const RateChange& change) {
    const auto at = std::ranges::lower_bound(rate_changes_, change.rank, {}, &RateChange::rank);
    return at != rate_changes_.end() && at->rank == change.rank && at->sequence >= change.sequence;
  };
  return std::ranges::includes(added_, other.added_) && std::ranges::includes(removed_, other.removed_) &&
         std::ranges::includes(confirmed_, other.confirmed_) &&
         std::ranges::all_of(other.rate_changes_, has_rate);
}

bool MembershipHistory::is_removed(uint64_t id) const {
  return contains(removed_, id);
}

bool MembershipHistory::is_active(uint64_t id) const {
  const bool known = contains(added_, id) || std::ranges::find(first_, id) != first_.end();
  return known && !contains(removed_, id);
}

std::optional<uint64_t> MembershipHistory::arbiter() const {
  for (const uint64_t id : first_)
    if (!contains(removed_, id)) return id;
  for (const uint64_t id : added_)
    if (!contains(removed_, id) && contains(confirmed_, id)) return id;
  return std::nullopt;
}

uint16_t MembershipHistory::version() const noexcept {
  return static_cast<uint16_t>(change_count());
}

uint64_t MembershipHistory::change_count() const noexcept {
  uint64_t count = added_.size() + removed_.size() + confirmed_.size();
  for (const RateChange& change : rate_changes_) count += change.sequence;
  return count;
}

std::vector<uint64_t> MembershipHistory::ids() const {
  std::vector<uint64_t> all = first_;
  all.insert(all.end(), added_.begin(), added_.end());
  return all;
}

std::vector<RateChanges> rate_messages(std::span<const RateChange> changes) {
  std::vector<RateChanges> messages;
  for (const RateChange& change : changes) {
    if (messages.empty() || messages.back().ranks.size() == kMaxRateChanges) messages.emplace_back();
    messages.back().ranks.push_back(change.rank);
    messages.back().sequences.push_back(change.sequence);
    messages.back().rates.push_back(change.rate);
  }
  return messages;
}

std::optional<std::vector<RateChange>> read_rate_changes(const RateChanges& message, uint32_t ranks) {
  const size_t count = message.ranks.size();
  if (message.sequences.size() != count || message.rates.size() != count) return std::nullopt;
  std::vector<RateChange> changes;
  for (size_t i = 0; i < count; ++i) {
    const RateChange change{
        .rank = message.ranks[i], .sequence = message.sequences[i], .rate = message.rates[i]};
    const bool ascends = changes.empty() || changes.back().rank < change.rank;
    if (!ascends || change.rank >= ranks || change.sequence == 0 || !is_link_rate(change.rate))
      return std::nullopt;
    changes.push_back(change);
  }
  return changes;
}

}  // namespace sluice::wire
