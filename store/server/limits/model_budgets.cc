#include "store/server/limits/model_budgets.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "wire/handshake.h"

namespace sluice::store {
namespace {

constexpr const char* kConnections = "connections to models";

std::shared_ptr<void> both(SharedBudget::Held first, SharedBudget::Held second) {
  using Places = std::pair<SharedBudget::Held, SharedBudget::Held>;
  return std::make_shared<Places>(std::move(first), std::move(second));
}

nlohmann::json status_of(const SharedBudget& budget, const char* each) {
  const SharedBudget::Use use = budget.use();
  return {{"used", use.used},
          {"limit", budget.limits().all},
          {each, budget.limits().each},
          {"refused", use.refused}};
}

}  // namespace

BudgetOptions BudgetOptions::for_descriptors(uint64_t limit) noexcept {
  BudgetOptions options;
  const uint64_t all = options.of_jobs.all + options.of_reducers.all;
  const uint64_t usable = std::max<uint64_t>(std::min(all, limit / 4), 16);
  for (uint64_t* const count :
       {&options.of_jobs.all, &options.of_jobs.each, &options.of_tenants.all, &options.of_tenants.each,
        &options.of_reducers.all, &options.of_reducers.each, &options.models.all, &options.models.each})
    *count = *count * usable / all;
  return options;
}

ModelBudgets::ModelBudgets(const BudgetOptions& options)
    : jobs_(std::make_shared<SharedBudget>(kConnections, "job", options.of_jobs)),
      tenants_(std::make_shared<SharedBudget>(kConnections, "tenant", options.of_tenants)),
      reducers_(std::make_shared<SharedBudget>(kConnections, "reducer", options.of_reducers)),
      query_bytes_(std::make_shared<SharedBudget>("bytes of queries", "job", options.query_bytes)),
      models_(std::make_shared<SharedBudget>("models", "job", options.models)),
      files_(std::make_shared<SharedBudget>("files of versions", "job", options.version_files)) {}

Result<std::shared_ptr<void>> ModelBudgets::take_connection(const std::string& job,
                                                            const std::string& tenant) {
  if (job == wire::kReducerJob) return reducers_->take(job, 1);
  auto of_job = jobs_->take(job, 1);
  if (!of_job) return of_job;
  auto of_tenant = tenants_->take(tenant, 1);
  if (!of_tenant) return of_tenant;
  return both(std::move(*of_job), std::move(*of_tenant));
}

Result<std::shared_ptr<void>> ModelBudgets::take_model(const std::string& job, uint64_t files) {
  auto model = models_->take(job, 1);
  if (!model) return model;
  auto of_files = files_->take(job, files);
  if (!of_files) return of_files;
  return both(std::move(*model), std::move(*of_files));
}

std::shared_ptr<void> ModelBudgets::hold_model(const std::string& job, uint64_t files) {
  return both(models_->hold(job, 1), files_->hold(job, files));
}

nlohmann::json ModelBudgets::status() const {
  nlohmann::json late = nlohmann::json::object();
  for (size_t i = 0; i < late_.size(); ++i) late[std::string(kConnectionStateNames[i])] = late_[i].load();
  nlohmann::json connections = status_of(*jobs_, "of_job");
  connections["of_tenant"] = tenants_->limits().each;
  connections["refused"] = jobs_->use().refused + tenants_->use().refused;
  return {{"connections", std::move(connections)},
          {"reducers", status_of(*reducers_, "of_reducer")},
          {"query_bytes", status_of(*query_bytes_, "of_job")},
          {"models", status_of(*models_, "of_job")},
          {"version_files", status_of(*files_, "of_job")},
          {"late", std::move(late)}};
}

}  // namespace sluice::store
