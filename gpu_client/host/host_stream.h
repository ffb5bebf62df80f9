// Class HostStream is a stream of the host: a thread that runs submitted work in order.
//
// Threads. Any thread may call any function. synchronize() must not be called from the stream's own work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/result.h"

namespace sluice::host {

class HostStream {
 public:
  // Returns kSystem if the thread cannot be started.
  [[nodiscard]] static Result<std::unique_ptr<HostStream>> start();
  // Runs all submitted work first.
  ~HostStream();
  HostStream(const HostStream&) = delete;

  // `work` must not throw.
  void submit(std::function<void()> work);
  // Blocks until all work that was submitted before the call is done.
  void synchronize() noexcept;

  // Whether `handle` points to a stream of this process that has not been destroyed. Never dereferences it.
  [[nodiscard]] static bool is_live(const void* handle);

 private:
  HostStream() = default;
  void run() noexcept;

  std::mutex mutex_;
  std::condition_variable submitted_, done_;
  std::deque<std::function<void()>> work_;
  uint64_t submitted_count_ = 0, done_count_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::host
