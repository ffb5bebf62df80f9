// Class JobBudgets bounds what one job takes of a reducer that others need too. Without it one token would
// suffice to keep all other jobs out.
//
// A job is known by its token, so there are budgets only where the reducer has a key. Holders of the pool key
// have none, nor has a reducer that serves one job. Control thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "core/result.h"
#include "reducer/reducer.h"

namespace sluice::reducer {

class AdmissionPolicy;

class JobBudgets {
 public:
  // kConnections: control connections and those that ask something. kLanes: lane connections of its sessions,
  // which cost file descriptors. kMemory: bytes that its sessions reserve.
  enum class Resource : uint8_t { kConnections, kLanes, kMemory };
  static constexpr size_t kResources = 3;

  // Class Share is what was taken; it is given back with the object.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept {
      reset();
      budgets_ = std::exchange(other.budgets_, nullptr);
      job_ = std::move(other.job_), resource_ = other.resource_, amount_ = other.amount_;
      return *this;
    }
    ~Share() { reset(); }
    [[nodiscard]] bool is_taken() const noexcept { return budgets_ != nullptr; }
    void reset() noexcept {
      if (JobBudgets* const from = std::exchange(budgets_, nullptr); from != nullptr)
        from->give_back(resource_, job_, amount_);
    }

   private:
    friend class JobBudgets;
    JobBudgets* budgets_ = nullptr;
    std::string job_;
    Resource resource_ = Resource::kConnections;
    uint64_t amount_ = 0;
  };

  // Both must outlive this object, and it the shares.
  JobBudgets(const ReducerOptions& options, const AdmissionPolicy& admission);
  JobBudgets(const JobBudgets&) = delete;

  // Takes so much for the job. Errors: kTooMany and kMemoryLimit if it has too much.
  [[nodiscard]] Result<Share> take(Resource resource, const std::string& job, uint64_t amount);

  // How much one job may take; the maximum where there is no budget.
  [[nodiscard]] uint64_t limit(Resource resource) const;
  [[nodiscard]] uint64_t refused() const noexcept { return refused_; }

 private:
  using Used = std::array<uint64_t, kResources>;
  void give_back(Resource resource, const std::string& job, uint64_t amount) noexcept;

  const ReducerOptions& options_;
  const AdmissionPolicy& admission_;
  const uint64_t descriptors_;        // of the process
  std::map<std::string, Used> jobs_;  // that have taken something
  uint64_t refused_ = 0;
};

}  // namespace sluice::reducer
