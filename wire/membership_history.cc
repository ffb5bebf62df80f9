#include "wire/membership_history.h"

#include <algorithm>

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

bool MembershipHistory::merge(const MembershipHistory& other) {
  bool grown = false;
  for (const uint64_t id : other.added_) grown |= add(id);
  for (const uint64_t id : other.removed_) grown |= remove(id);
  for (const uint64_t id : other.confirmed_) grown |= confirm(id);
  return grown;
}

bool MembershipHistory::covers(const MembershipHistory& other) const {
  return std::ranges::includes(added_, other.added_) && std::ranges::includes(removed_, other.removed_) &&
         std::ranges::includes(confirmed_, other.confirmed_);
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
  return static_cast<uint16_t>(added_.size() + removed_.size() + confirmed_.size());
}

std::vector<uint64_t> MembershipHistory::ids() const {
  std::vector<uint64_t> all = first_;
  all.insert(all.end(), added_.begin(), added_.end());
  return all;
}

}  // namespace sluice::wire
