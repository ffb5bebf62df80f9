#include "gpu_client/cuda/context.h"

#include <utility>

#include "gpu_client/cuda/device_memory.h"

namespace sluice::cuda {
namespace {

// Converts the result of a call that opens a GPU: errors mean that no GPU can be used.
Result<void> require_gpu(const Driver& d, CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return {};
  if (result == CUDA_ERROR_NO_DEVICE) return fail(Errc::kUnsupported, "this machine has no GPU");
  return fail(Errc::kUnsupported, what + ": " + describe(d, result));
}

Result<int> current_ordinal(const Driver& d) {
  CUdevice device = 0;
  if (d.ctx_get_device(&device) != CUDA_SUCCESS)
    return fail(Errc::kInvalidArgument,
                "device is -1, which needs a current CUDA context, but this thread has none");
  return device;  // a CUdevice is its ordinal
}

}  // namespace

Result<int> count_gpus() {
  const auto loaded = driver();
  if (!loaded) return tl::unexpected(loaded.error());
  const Driver& d = **loaded;
  if (auto up = require_gpu(d, d.init(0), "cannot initialize the CUDA driver"); !up)
    return tl::unexpected(std::move(up.error()));
  int count = 0;
  if (auto counted = require_gpu(d, d.device_get_count(&count), "cannot count the GPUs"); !counted)
    return tl::unexpected(std::move(counted.error()));
  if (count == 0) return fail(Errc::kUnsupported, "this machine has no GPU");
  return count;
}

Result<std::shared_ptr<Context>> Context::retain(int ordinal) {
  const auto count = count_gpus();
  if (!count) return tl::unexpected(count.error());
  const Driver& d = **cuda::driver();
  if (ordinal == -1) {
    const auto current = current_ordinal(d);
    if (!current) return tl::unexpected(current.error());
    ordinal = *current;
  }
  if (ordinal < 0 || ordinal >= *count)
    return fail(Errc::kInvalidArgument, "no GPU " + std::to_string(ordinal) + ": this machine has " +
                                            std::to_string(*count) + " GPUs");
  const std::string name = "GPU " + std::to_string(ordinal);
  CUdevice device = 0;
  if (auto got = require_gpu(d, d.device_get(&device, ordinal), name); !got)
    return tl::unexpected(std::move(got.error()));
  CUcontext handle = nullptr;
  if (const CUresult r = d.device_primary_ctx_retain(&handle, device); r != CUDA_SUCCESS)
    return fail(Errc::kSystem, "cannot retain the primary context of " + name + ": " + describe(d, r));
  auto context = std::make_shared<Context>(d, device, ordinal, handle);
  // All code here relies on pinned memory having one address for the host and the GPU.
  if (context->attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 0)
    return fail(Errc::kUnsupported, name + " does not support unified addressing");
  return context;
}

Context::~Context() {
  (void)driver_.device_primary_ctx_release(device_);
}

Context::ScopedCurrent::ScopedCurrent(const Context& context) noexcept
    : driver_(context.driver_), result_(driver_.ctx_push_current(context.handle_)) {
  // In the global capture mode, harmless queries here would break a capture of another thread.
  if (result_ == CUDA_SUCCESS) (void)driver_.thread_exchange_stream_capture_mode(&mode_);
}

Context::ScopedCurrent::~ScopedCurrent() {
  if (result_ != CUDA_SUCCESS) return;
  (void)driver_.thread_exchange_stream_capture_mode(&mode_);
  CUcontext popped = nullptr;
  (void)driver_.ctx_pop_current(&popped);
}

int Context::attribute(CUdevice_attribute which) const noexcept {
  int value = 0;
  return driver_.device_get_attribute(&value, which, device_) == CUDA_SUCCESS ? value : 0;
}

Status Context::check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  std::string error = "GPU " + std::to_string(ordinal_) + ": " + what + ": " + describe(driver_, result);
  const std::lock_guard lock(mutex_);
  last_error_ = std::move(error);
  return Errc::kSystem;
}

std::string Context::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace sluice::cuda
