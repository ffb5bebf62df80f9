#include "store/server/limits/shared_budget.h"

#include <algorithm>
#include <utility>

#include "config/printable_text.h"

namespace sluice::store {

Result<SharedBudget::Held> SharedBudget::take(const std::string& owner, uint64_t units) {
  std::unique_lock lock(mutex_);
  const auto found = used_.find(owner);
  const uint64_t used = found == used_.end() ? 0 : found->second;
  const auto is_free = [units](uint64_t limit, uint64_t in_use) {
    return units <= limit - std::min(in_use, limit);
  };
  const bool has_own = is_free(limits_.each, used);
  if (has_own && is_free(limits_.all, total_)) return add(lock, owner, units);
  ++refused_;
  const auto text = [](uint64_t n) { return std::to_string(n); };
  const std::string more = units == 1 ? "one more" : text(units) + " more";
  if (!has_own)
    return fail(Errc::kTooMany, owner_ + " " + config::in_quotes(owner) + " has " + text(used) + " of the " +
                                    text(limits_.each) + " " + resource_ + " that a " + owner_ +
                                    " may have on this reducer, and needs " + more);
  return fail(Errc::kTooMany, "all " + owner_ + "s have " + text(total_) + " of the " + text(limits_.all) +
                                  " " + resource_ + " of this reducer, and " + owner_ + " " +
                                  config::in_quotes(owner) + " needs " + more);
}

SharedBudget::Held SharedBudget::hold(const std::string& owner, uint64_t units) {
  std::unique_lock lock(mutex_);
  return add(lock, owner, units);
}

// Without memory for it, the object that is returned subtracts the units at once, so without the lock.
SharedBudget::Held SharedBudget::add(std::unique_lock<std::mutex>& lock, const std::string& owner,
                                     uint64_t units) {
  if (units == 0) return nullptr;
  used_[owner] += units;
  total_ += units;
  lock.unlock();
  return {this, [self = shared_from_this(), owner, units](void*) { self->subtract(owner, units); }};
}

void SharedBudget::subtract(const std::string& owner, uint64_t units) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = used_.find(owner);
  if (found == used_.end()) return;
  total_ -= units;
  if ((found->second -= units) == 0) used_.erase(found);
}

SharedBudget::Use SharedBudget::use() const {
  const std::scoped_lock lock(mutex_);
  return {.used = total_, .refused = refused_};
}

}  // namespace sluice::store
