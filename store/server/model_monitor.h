// Class ModelMonitor answers the reducer's questions about its models without a wait for their work: what the
// status shows, and whether a job still uses them.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/server/limits/model_budgets.h"
#include "store/server/memory_budget.h"
#include "store/server/model_counters.h"

namespace sluice::store {

class ModelMonitor {
 public:
  static constexpr size_t kMaxListed = 16;  // models in the status, and values of a metric's label

  explicit ModelMonitor(uint64_t memory_limit, const BudgetOptions& budgets = {})
      : budget_(std::make_shared<MemoryBudget>(memory_limit)), budgets_(budgets) {}

  // Of all models, which charge it.
  [[nodiscard]] const std::shared_ptr<MemoryBudget>& budget() const noexcept { return budget_; }
  [[nodiscard]] ModelBudgets& budgets() noexcept { return budgets_; }

  // The model is listed as long as another owner holds the object.
  void add(const std::shared_ptr<ModelCounters>& model);
  // Connections of clients.
  [[nodiscard]] uint32_t clients() const { return budgets_.clients(); }
  // Whether a model has received a delta. To be called from time to time: one that is deleted first does not
  // count.
  [[nodiscard]] bool has_pushes();
  // {"models": [...], "store": {...}}, as docs/guides/operate.md describes. `max_bytes` bound the list:
  // models beyond, in the order of names, are counted but not listed.
  [[nodiscard]] std::string status_json(size_t max_bytes);

 private:
  [[nodiscard]] std::vector<std::shared_ptr<const ModelCounters>> models();

  const std::shared_ptr<MemoryBudget> budget_;
  ModelBudgets budgets_;
  std::atomic<bool> has_pushes_{false};
  std::mutex mutex_;
  std::vector<std::weak_ptr<const ModelCounters>> models_;
};

}  // namespace sluice::store
