// Class DueTimes orders the sessions or connections of a reducer by when the clock must next visit each, so
// that those without work cost the others nothing. Control thread only.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/units.h"

namespace sluice::reducer {

template <typename Key>
class DueTimes {
 public:
  // `key` is due at `at`, and not at the time that was set before.
  void set(Key key, Nanos at) {
    if (const auto known = at_.find(key); known != at_.end()) {
      auto node = order_.extract({known->second, key});
      node.value() = {at, key};
      order_.insert(std::move(node));
      known->second = at;
      return;
    }
    const auto added = order_.emplace(at, key).first;
    try {
      at_.emplace(key, at);
    } catch (...) {
      order_.erase(added);
      throw;
    }
  }
  // The same, if `at` is earlier than that time.
  void bring_forward(Key key, Nanos at) {
    const auto known = at_.find(key);
    if (known == at_.end() || at < known->second) set(key, at);
  }
  void remove(Key key) noexcept {
    const auto known = at_.find(key);
    if (known == at_.end()) return;
    order_.erase({known->second, key});
    at_.erase(known);
  }
  // The one that has been due for longest, at `now` or before. It stays due until set() or remove().
  [[nodiscard]] std::optional<Key> first(Nanos now) const {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    return order_.begin()->second;
  }

 private:
  std::set<std::pair<Nanos, Key>> order_;
  std::unordered_map<Key, Nanos> at_;
};

}  // namespace sluice::reducer
