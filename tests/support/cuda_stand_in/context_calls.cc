#include <algorithm>

#include "tests/support/cuda_stand_in/driver_state.h"

using namespace sluice::cuda_stand_in;  // NOLINT(google-build-using-namespace): the driver's functions have
                                        // no namespace

namespace {

bool exists(CUdevice device) {
  return device >= 0 && device < driver_state().gpus;
}

}  // namespace

CUresult CUDAAPI cuInit(unsigned int flags) {
  if (const CUresult r = enter("cuInit", Requires::kNothing); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  if (driver_state().gpus == 0) return CUDA_ERROR_NO_DEVICE;
  driver_state().started = true;
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS: *text = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_INVALID_HANDLE: *text = "CUDA_ERROR_INVALID_HANDLE"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case CUDA_ERROR_LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; break;
    case CUDA_ERROR_NO_BINARY_FOR_GPU: *text = "CUDA_ERROR_NO_BINARY_FOR_GPU"; break;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  *text = "from the stand-in";
  return error == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  if (const CUresult r = enter("cuDeviceGetCount", Requires::kStarted); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  *count = driver_state().gpus;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult r = enter("cuDeviceGet", Requires::kStarted); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  *device = ordinal;
  return exists(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (const CUresult r = enter("cuDeviceGetAttribute", Requires::kStarted); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING ||
           attribute == CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult r = enter("cuDevicePrimaryCtxRetain", Requires::kStarted); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = driver_state().primary[static_cast<size_t>(device)];
  ++primary.retained;
  *context = as<CUctx_st>(&primary);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  if (const CUresult r = enter("cuDevicePrimaryCtxRelease", Requires::kStarted); r != CUDA_SUCCESS) return r;
  DriverState& m = driver_state();
  Lock lock(m.mutex);
  Context& primary = m.primary[static_cast<size_t>(device)];
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retained > 0) return CUDA_SUCCESS;
  // Destroys the context's own streams. Their queues must end without the lock, because their last work takes
  // it.
  const auto legacy = std::move(primary.legacy);
  const auto per_thread = std::move(primary.per_thread);
  primary.legacy = nullptr;
  primary.per_thread.clear();
  lock.unlock();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  if (const CUresult r = enter("cuCtxPushCurrent", Requires::kStarted); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  auto* const pushed = as<Context>(context);
  const bool known = std::ranges::any_of(
      driver_state().primary, [pushed](const Context& c) { return &c == pushed && c.retained > 0; });
  if (!known) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(pushed);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  if (const CUresult r = enter("cuCtxPopCurrent", Requires::kStarted); r != CUDA_SUCCESS) return r;
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = as<CUctx_st>(current());
  context_stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  *context = as<CUctx_st>(current());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  if (const CUresult r = enter("cuCtxGetDevice"); r != CUDA_SUCCESS) return r;
  *device = current()->ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode());
  return CUDA_SUCCESS;
}
