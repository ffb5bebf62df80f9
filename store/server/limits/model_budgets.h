// Class ModelBudgets is what peers may take of a reducer's models besides memory: docs/guides/secure.md,
// "Budgets".
//
// Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"
#include "store/server/limits/deadlines.h"
#include "store/server/limits/shared_budget.h"

namespace sluice::store {

struct BudgetOptions {
  // Connections of clients, by job and by tenant, and those of other reducers, which clients cannot take.
  BudgetLimits of_jobs{.all = 8192, .each = 3072};
  BudgetLimits of_tenants{.all = 8192, .each = 4096};
  // For each model its leader has one, and the owner whose shard is copied here another.
  BudgetLimits of_reducers{.all = 4096, .each = 4096};
  // Bytes of queries' bodies and answers, by job, while they arrive or wait to be sent.
  BudgetLimits query_bytes{.all = 64 * kMiB, .each = 16 * kMiB};

  // Models, each with a thread, links to the other reducers and two locks; and files of their versions, each
  // mapped. By the job that has created them.
  BudgetLimits models{.all = 1024, .each = 256};
  BudgetLimits version_files{.all = 16384, .each = 4096};

  // Connections and models in the same proportions, for a process with this limit of descriptors: at most a
  // quarter of them, because sessions and files need theirs.
  [[nodiscard]] static BudgetOptions for_descriptors(uint64_t limit) noexcept;
};

class ModelBudgets {
 public:
  explicit ModelBudgets(const BudgetOptions& options);

  // The place of a connection, until the object ends. `job`: wire::kReducerJob if the peer is a reducer.
  // kTooMany, counted.
  [[nodiscard]] Result<std::shared_ptr<void>> take_connection(const std::string& job,
                                                              const std::string& tenant);
  // The place of a model of this job with so many files.
  [[nodiscard]] Result<std::shared_ptr<void>> take_model(const std::string& job, uint64_t files);
  // The same beyond the limits: of a model that is there.
  [[nodiscard]] std::shared_ptr<void> hold_model(const std::string& job, uint64_t files);
  // For `bytes` of a query of this job, in the same way.
  [[nodiscard]] Result<std::shared_ptr<void>> take_query_bytes(const std::string& job, uint64_t bytes) {
    return query_bytes_->take(job, bytes);
  }
  [[nodiscard]] uint32_t clients() const { return static_cast<uint32_t>(jobs_->use().used); }
  // A peer that exceeded a deadline was disconnected.
  void count_late(ConnectionState state) noexcept { late_[static_cast<size_t>(state)].fetch_add(1); }

  // {"connections": {"used": 3, "limit": 8192, "of_job": 3072, "refused": 0}, ..., "late": {"idle": 1}}
  [[nodiscard]] nlohmann::json status() const;

 private:
  const std::shared_ptr<SharedBudget> jobs_, tenants_, reducers_, query_bytes_, models_, files_;
  std::array<std::atomic<uint64_t>, kConnectionStateNames.size()> late_{};
};

}  // namespace sluice::store
