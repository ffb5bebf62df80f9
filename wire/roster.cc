#include "wire/roster.h"

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

bool Roster::add(uint64_t id) {
  return std::ranges::find(first_, id) == first_.end() && insert(added_, id);
}

bool Roster::remove(uint64_t id) {
  return insert(removed_, id);
}

bool Roster::seat(uint64_t id) {
  return std::ranges::find(first_, id) == first_.end() && insert(seated_, id);
}

bool Roster::merge(const Roster& other) {
  bool grown = false;
  for (const uint64_t id : other.added_) grown |= add(id);
  for (const uint64_t id : other.removed_) grown |= remove(id);
  for (const uint64_t id : other.seated_) grown |= seat(id);
  return grown;
}

bool Roster::covers(const Roster& other) const {
  return std::ranges::includes(added_, other.added_) && std::ranges::includes(removed_, other.removed_) &&
         std::ranges::includes(seated_, other.seated_);
}

bool Roster::removed(uint64_t id) const {
  return contains(removed_, id);
}

bool Roster::living(uint64_t id) const {
  const bool known = contains(added_, id) || std::ranges::find(first_, id) != first_.end();
  return known && !contains(removed_, id);
}

std::optional<uint64_t> Roster::arbiter() const {
  for (const uint64_t id : first_)
    if (!contains(removed_, id)) return id;
  for (const uint64_t id : added_)
    if (!contains(removed_, id) && contains(seated_, id)) return id;
  return std::nullopt;
}

uint16_t Roster::version() const noexcept {
  return static_cast<uint16_t>(added_.size() + removed_.size() + seated_.size());
}

std::vector<uint64_t> Roster::ids() const {
  std::vector<uint64_t> all = first_;
  all.insert(all.end(), added_.begin(), added_.end());
  return all;
}

}  // namespace sluice::wire
