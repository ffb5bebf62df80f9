// A stream of the host: one thread that does what it is given, one after the other.
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
  [[nodiscard]] static Result<std::unique_ptr<HostStream>> start();
  // Does what it was given before.
  ~HostStream();
  HostStream(const HostStream&) = delete;

  // Any thread. Nothing of `work` throws.
  void submit(std::function<void()> work);
  // Returns when all is done that was given before. Not from the stream's own work.
  void synchronize() noexcept;

  // Whether `handle` is a stream of this process that lives. Any thread.
  [[nodiscard]] static bool is_one(const void* handle);

 private:
  HostStream() = default;
  void run() noexcept;

  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::function<void()>> work_;
  uint64_t count_given_ = 0, count_done_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::host
