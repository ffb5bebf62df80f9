#include "gpu_client/store/shard_threads.h"

#include <algorithm>
#include <exception>

#include "gpu_client/engine/base/thread.h"
#include "gpu_client/store/store_connection.h"

namespace sluice::store_client {
namespace {

// The end of the process is no answer to a lack of memory.
Result<void> run_one(const ShardThreads::Task& task, uint32_t shard) {
  try {
    return task(shard);
  } catch (const std::exception& e) {
    return fail(Errc::kSystem, std::string("transfer of a shard: ") + e.what());
  }
}

}  // namespace

ShardThreads::~ShardThreads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Result<void> ShardThreads::start_threads(uint32_t count) {
  threads_.reserve(count);
  while (threads_.size() < count) {
    const auto shard = static_cast<uint32_t>(threads_.size());
    auto thread = engine::start_thread(name_, [this, shard] { serve(shard); });
    if (!thread) return tl::unexpected(thread.error());
    threads_.push_back(std::move(*thread));
  }
  return {};
}

void ShardThreads::serve(uint32_t shard) {
  std::unique_lock lock(mutex_);
  for (uint64_t seen = 0;;) {
    changed_.wait(lock, [&] { return ending_ || (run_ != seen && task_ != nullptr); });
    if (ending_) return;
    seen = run_;
    if (shard >= shards_) continue;
    const Task* const task = task_;
    lock.unlock();
    Result<void> result = run_one(*task, shard);
    lock.lock();
    results_[shard] = std::move(result);
    if (--running_ == 0) changed_.notify_all();
  }
}

Result<void> ShardThreads::run(uint32_t shards, const Task& task) {
  SLUICE_RETURN_IF_ERROR(start_threads(shards));
  std::unique_lock lock(mutex_);
  results_.assign(shards, {});
  task_ = &task;
  shards_ = running_ = shards;
  ++run_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return running_ == 0; });
  task_ = nullptr;
  const auto is_final = [](const Result<void>& r) { return !r && !is_retryable(r.error().code); };
  if (const auto found = std::ranges::find_if(results_, is_final); found != results_.end()) return *found;
  const auto failed = std::ranges::find_if(results_, [](const Result<void>& r) { return !r; });
  return failed == results_.end() ? Result<void>() : *failed;
}

}  // namespace sluice::store_client
