// Class SharedBudget shares the units of one resource of a reducer among owners, such as jobs: each may hold
// so many, and all together so many.
//
// Any thread. Its cost does not depend on the number of owners or units.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/result.h"

namespace sluice::store {

struct BudgetLimits {
  uint64_t all = 0;
  uint64_t each = 0;  // owner
};

class SharedBudget : public std::enable_shared_from_this<SharedBudget> {
 public:
  // `resource` and `owner` are words of the refusals: "connections to models", "job".
  SharedBudget(std::string resource, std::string owner, BudgetLimits limits)
      : resource_(std::move(resource)), owner_(std::move(owner)), limits_(limits) {}

  // The units return when the object ends, which keeps the budget alive.
  using Held = std::shared_ptr<void>;
  // kTooMany: a limit would be exceeded; the text names it. The refusal is counted.
  [[nodiscard]] Result<Held> take(const std::string& owner, uint64_t units);
  // Beyond the limits too.
  [[nodiscard]] Held hold(const std::string& owner, uint64_t units);

  struct Use {
    uint64_t used = 0;
    uint64_t refused = 0;  // requests
  };
  [[nodiscard]] Use use() const;
  [[nodiscard]] const BudgetLimits& limits() const noexcept { return limits_; }

 private:
  [[nodiscard]] Held add(std::unique_lock<std::mutex>& lock, const std::string& owner, uint64_t units);
  void subtract(const std::string& owner, uint64_t units) noexcept;

  const std::string resource_, owner_;
  const BudgetLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> used_;  // by owner; never 0
  uint64_t total_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace sluice::store
