// Class QueryTurns lets one query about models of each job run at a time, and a few of all jobs: parsing one
// may take many times the memory of its text.
//
// Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/result.h"
#include "core/units.h"

namespace sluice::store {

class QueryTurns {
 public:
  static constexpr uint32_t kMostAtOnce = 8;

  class Turn {
   public:
    Turn(Turn&& other) noexcept = default;
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (job_) turns_->end(*job_);
    }

   private:
    friend class QueryTurns;
    struct Job {
      std::string name;
      std::condition_variable ended;  // its turn
      bool has_turn = false;
      uint32_t threads = 0;  // that have or wait for it
    };
    Turn(QueryTurns& turns, std::shared_ptr<Job> job) noexcept : turns_(&turns), job_(std::move(job)) {}

    QueryTurns* turns_;
    std::shared_ptr<Job> job_;
  };

  // kTooMany: others take longer than until the deadline.
  [[nodiscard]] Result<Turn> take(const std::string& job, Nanos deadline);

 private:
  using Job = Turn::Job;
  void end(Job& job) noexcept;
  // Called with the mutex. The job may be gone afterwards.
  void leave(Job& job) noexcept;

  std::mutex mutex_;
  std::condition_variable ended_;  // a turn
  uint32_t running_ = 0;
  std::map<std::string, std::shared_ptr<Job>> jobs_;
};

}  // namespace sluice::store
