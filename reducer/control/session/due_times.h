// Class DueTimes orders the sessions of a reducer by when each next needs a tick, so that a session without
// work costs the others nothing. Control thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/units.h"

namespace sluice::reducer {

class DueTimes {
 public:
  // The session of this handle is due at `at`, and not at the time that was set before.
  void set(uint32_t handle, Nanos at) {
    const auto [known, is_new] = at_.try_emplace(handle, at);
    if (!is_new) {
      if (known->second == at) return;
      order_.erase({known->second, handle});
      known->second = at;
    }
    order_.emplace(at, handle);
  }
  // The same, if `at` is earlier than that time.
  void bring_forward(uint32_t handle, Nanos at) {
    const auto known = at_.find(handle);
    if (known == at_.end() || at < known->second) set(handle, at);
  }
  void remove(uint32_t handle) {
    const auto known = at_.find(handle);
    if (known == at_.end()) return;
    order_.erase({known->second, handle});
    at_.erase(known);
  }
  // The session that has been due for longest, at `now` or before. It stays due until set() or remove().
  [[nodiscard]] std::optional<uint32_t> first(Nanos now) const {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    return order_.begin()->second;
  }
  [[nodiscard]] size_t size() const noexcept { return at_.size(); }

 private:
  std::set<std::pair<Nanos, uint32_t>> order_;
  std::unordered_map<uint32_t, Nanos> at_;
};

}  // namespace sluice::reducer
