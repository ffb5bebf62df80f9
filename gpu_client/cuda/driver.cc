#include "gpu_client/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <optional>

namespace sluice::cuda {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr && missing.empty()) missing = name;
  function = reinterpret_cast<Function>(symbol);
}

}  // namespace

Result<Driver> load_driver(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return fail(Errc::kUnsupported,
                std::string("no CUDA driver on this machine: ") + (why != nullptr ? why : library));
  }
  Driver d{};
  std::string missing;
  find(handle, "cuInit", d.init, missing);
  find(handle, "cuDriverGetVersion", d.driver_get_version, missing);
  find(handle, "cuGetErrorName", d.get_error_name, missing);
  find(handle, "cuGetErrorString", d.get_error_string, missing);
  find(handle, "cuDeviceGetCount", d.device_get_count, missing);
  find(handle, "cuDeviceGet", d.device_get, missing);
  find(handle, "cuDeviceGetAttribute", d.device_get_attribute, missing);
  find(handle, "cuDevicePrimaryCtxRetain", d.device_primary_ctx_retain, missing);
  find(handle, "cuDevicePrimaryCtxRelease_v2", d.device_primary_ctx_release, missing);
  find(handle, "cuCtxPushCurrent_v2", d.ctx_push_current, missing);
  find(handle, "cuCtxPopCurrent_v2", d.ctx_pop_current, missing);
  find(handle, "cuCtxGetDevice", d.ctx_get_device, missing);
  find(handle, "cuThreadExchangeStreamCaptureMode", d.thread_exchange_stream_capture_mode, missing);
  find(handle, "cuMemHostAlloc", d.mem_host_alloc, missing);
  find(handle, "cuMemFreeHost", d.mem_free_host, missing);
  find(handle, "cuMemAlloc_v2", d.mem_alloc, missing);
  find(handle, "cuMemFree_v2", d.mem_free, missing);
  find(handle, "cuMemsetD8Async", d.memset_d8_async, missing);
  find(handle, "cuMemcpyDtoHAsync_v2", d.memcpy_dtoh_async, missing);
  find(handle, "cuMemcpyHtoDAsync_v2", d.memcpy_htod_async, missing);
  find(handle, "cuPointerGetAttributes", d.pointer_get_attributes, missing);
  find(handle, "cuStreamCreate", d.stream_create, missing);
  find(handle, "cuStreamDestroy_v2", d.stream_destroy, missing);
  find(handle, "cuStreamSynchronize", d.stream_synchronize, missing);
  find(handle, "cuStreamGetCtx", d.stream_get_ctx, missing);
  find(handle, "cuStreamIsCapturing", d.stream_is_capturing, missing);
  find(handle, "cuStreamWaitEvent", d.stream_wait_event, missing);
  // The one without _v2 is another: drivers refuse it unless told otherwise at boot.
  find(handle, "cuStreamWaitValue32_v2", d.stream_wait_value32, missing);
  find(handle, "cuEventCreate", d.event_create, missing);
  find(handle, "cuEventDestroy_v2", d.event_destroy, missing);
  find(handle, "cuEventRecord", d.event_record, missing);
  find(handle, "cuEventQuery", d.event_query, missing);
  find(handle, "cuEventSynchronize", d.event_synchronize, missing);
  find(handle, "cuModuleLoadData", d.module_load_data, missing);
  find(handle, "cuModuleUnload", d.module_unload, missing);
  find(handle, "cuModuleGetFunction", d.module_get_function, missing);
  find(handle, "cuLaunchKernel", d.launch_kernel, missing);
  if (!missing.empty()) {
    ::dlclose(handle);  // nothing of it has been called
    return fail(Errc::kUnsupported,
                std::string("the CUDA driver ") + library + " is too old: it has no " + missing);
  }
  return d;
}

Result<const Driver*> driver() {
  static std::mutex mutex;
  static std::optional<Driver> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) {
    const char* const other = std::getenv("SLUICE_CUDA_DRIVER");
    auto found = load_driver(other != nullptr && *other != '\0' ? other : "libcuda.so.1");
    if (!found) return tl::unexpected(std::move(found.error()));
    loaded = *found;
  }
  return &*loaded;
}

std::string describe(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "CUDA error " + std::to_string(static_cast<int>(result));
  if (driver.get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + ": " + text;
}

}  // namespace sluice::cuda
