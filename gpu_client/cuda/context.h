// Class Context holds the primary CUDA context of one GPU, which it shares with the CUDA runtime of the
// process. The context is retained while a Context exists. It is current on a thread only during a call of
// this library.
//
// Threads. Any thread may call any function.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/result.h"
#include "gpu_client/cuda/driver.h"

namespace sluice::cuda {

class Context {
 public:
  // `ordinal` -1 means the GPU of the calling thread's current context. Returns kUnsupported without a driver
  // or GPU, or if the GPU lacks a needed feature; kInvalidArgument if there is no such GPU or no current
  // context.
  [[nodiscard]] static Result<std::shared_ptr<Context>> retain(int ordinal);
  Context(const Driver& driver, CUdevice device, int ordinal, CUcontext handle) noexcept
      : driver_(driver), device_(device), ordinal_(ordinal), handle_(handle) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  // Makes the context current on the calling thread for the lifetime of the object. Also relaxes the thread's
  // capture mode, so that its calls do not break a stream capture of another thread.
  class ScopedCurrent {
   public:
    explicit ScopedCurrent(const Context& context) noexcept;
    ~ScopedCurrent();
    ScopedCurrent(const ScopedCurrent&) = delete;
    ScopedCurrent& operator=(const ScopedCurrent&) = delete;
    [[nodiscard]] CUresult result() const noexcept { return result_; }

   private:
    const Driver& driver_;
    CUresult result_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  };

  // Runs call(driver) with the context current. Returns its result, or the error of making the context
  // current.
  template <typename Call>
  CUresult invoke(Call&& call) const {
    const ScopedCurrent current(*this);
    return current.result() != CUDA_SUCCESS ? current.result() : call(driver_);
  }

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] CUcontext handle() const noexcept { return handle_; }
  // Returns 0 if the driver does not know the attribute.
  [[nodiscard]] int attribute(CUdevice_attribute which) const noexcept;

  // Returns kSystem for an error, and stores "GPU 0: <what>: <error>" as the last error.
  Status check(CUresult result, const char* what);
  [[nodiscard]] std::string last_error() const;

 private:
  const Driver& driver_;
  const CUdevice device_;
  const int ordinal_;
  const CUcontext handle_;
  mutable std::mutex mutex_;
  std::string last_error_;
};

}  // namespace sluice::cuda
