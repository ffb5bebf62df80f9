// Class ShardThreads runs a task for each shard of a model at the same time, on threads that live as long as
// the object. One caller at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/result.h"

namespace sluice::store_client {

class ShardThreads {
 public:
  using Task = std::function<Result<void>(uint32_t shard)>;

  explicit ShardThreads(const char* name) noexcept : name_(name) {}  // at most 15 characters
  ShardThreads(const ShardThreads&) = delete;
  ShardThreads& operator=(const ShardThreads&) = delete;
  ~ShardThreads();

  // Waits for the tasks of all shards, also after an error. Returns the error of the lowest shard, of errors
  // that a retry may not end before others.
  [[nodiscard]] Result<void> run(uint32_t shards, const Task& task);

 private:
  [[nodiscard]] Result<void> start_threads(uint32_t count);
  void serve(uint32_t shard);

  const char* name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  uint64_t run_ = 0;      // number of the current run
  uint32_t shards_ = 0;   // of the current run
  uint32_t running_ = 0;  // tasks
  const Task* task_ = nullptr;
  std::vector<Result<void>> results_;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::store_client
