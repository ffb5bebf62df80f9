// The primary context of one GPU, which the CUDA runtime of the process shares: kept for as long as somebody
// holds a Context, and current on a thread only while one of our calls is there.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/result.h"
#include "gpu_client/cuda/driver.h"

namespace sluice::cuda {

class Context {
 public:
  // -1: the GPU of the calling thread's current context. kUnsupported: no driver, no GPU, or one that lacks
  // what is needed.
  [[nodiscard]] static Result<std::shared_ptr<Context>> retain(int ordinal);
  Context(const Driver& driver, CUdevice device, int ordinal, CUcontext handle) noexcept
      : driver_(driver), device_(device), ordinal_(ordinal), handle_(handle) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  // Makes the context the calling thread's own, and the thread's calls none of a graph that some thread is
  // capturing, until it goes out of scope.
  class Entered {
   public:
    explicit Entered(const Context& context) noexcept;
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    [[nodiscard]] CUresult result() const noexcept { return result_; }

   private:
    const Driver& driver_;
    CUresult result_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  };

  // What call(driver) says within the context, or why the context can't be entered.
  template <typename Call>
  CUresult within(Call&& call) const {
    const Entered entered(*this);
    return entered.result() != CUDA_SUCCESS ? entered.result() : call(driver_);
  }

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] CUcontext handle() const noexcept { return handle_; }
  // 0 where the driver does not know it.
  [[nodiscard]] int attribute(CUdevice_attribute which) const noexcept;

  // kSystem, and the words kept, unless it went well.
  Status check(CUresult result, const char* what);
  [[nodiscard]] std::string last_words() const;

 private:
  const Driver& driver_;
  const CUdevice device_;
  const int ordinal_;
  const CUcontext handle_;
  mutable std::mutex mutex_;
  std::string last_words_;
};

}  // namespace sluice::cuda
