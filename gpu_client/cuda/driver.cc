#include "gpu_client/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <optional>

namespace sluice::cuda {
namespace {

template <typename Function>
void find_symbol(void* library, const char* name, Function& function, std::string& missing) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr && missing.empty()) missing = name;
  function = reinterpret_cast<Function>(symbol);
}

}  // namespace

Result<Driver> load_driver(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = ::dlerror();
    return fail(Errc::kUnsupported,
                std::string("cannot load the CUDA driver: ") + (error != nullptr ? error : library));
  }
  Driver d{};
  std::string missing;
  find_symbol(handle, "cuInit", d.init, missing);
  find_symbol(handle, "cuDriverGetVersion", d.driver_get_version, missing);
  find_symbol(handle, "cuGetErrorName", d.get_error_name, missing);
  find_symbol(handle, "cuGetErrorString", d.get_error_string, missing);
  find_symbol(handle, "cuDeviceGetCount", d.device_get_count, missing);
  find_symbol(handle, "cuDeviceGet", d.device_get, missing);
  find_symbol(handle, "cuDeviceGetAttribute", d.device_get_attribute, missing);
  find_symbol(handle, "cuDevicePrimaryCtxRetain", d.device_primary_ctx_retain, missing);
  find_symbol(handle, "cuDevicePrimaryCtxRelease_v2", d.device_primary_ctx_release, missing);
  find_symbol(handle, "cuCtxPushCurrent_v2", d.ctx_push_current, missing);
  find_symbol(handle, "cuCtxPopCurrent_v2", d.ctx_pop_current, missing);
  find_symbol(handle, "cuCtxGetDevice", d.ctx_get_device, missing);
  find_symbol(handle, "cuThreadExchangeStreamCaptureMode", d.thread_exchange_stream_capture_mode, missing);
  find_symbol(handle, "cuMemHostAlloc", d.mem_host_alloc, missing);
  find_symbol(handle, "cuMemFreeHost", d.mem_free_host, missing);
  find_symbol(handle, "cuMemAlloc_v2", d.mem_alloc, missing);
  find_symbol(handle, "cuMemFree_v2", d.mem_free, missing);
  find_symbol(handle, "cuMemsetD8Async", d.memset_d8_async, missing);
  find_symbol(handle, "cuMemcpyDtoHAsync_v2", d.memcpy_dtoh_async, missing);
  find_symbol(handle, "cuMemcpyHtoDAsync_v2", d.memcpy_htod_async, missing);
  find_symbol(handle, "cuPointerGetAttributes", d.pointer_get_attributes, missing);
  find_symbol(handle, "cuStreamCreate", d.stream_create, missing);
  find_symbol(handle, "cuStreamDestroy_v2", d.stream_destroy, missing);
  find_symbol(handle, "cuStreamSynchronize", d.stream_synchronize, missing);
  find_symbol(handle, "cuStreamGetCtx", d.stream_get_ctx, missing);
  find_symbol(handle, "cuStreamIsCapturing", d.stream_is_capturing, missing);
  find_symbol(handle, "cuStreamWaitEvent", d.stream_wait_event, missing);
  // Not the symbol without _v2, which drivers refuse unless a module parameter enables it.
  find_symbol(handle, "cuStreamWaitValue32_v2", d.stream_wait_value32, missing);
  find_symbol(handle, "cuEventCreate", d.event_create, missing);
  find_symbol(handle, "cuEventDestroy_v2", d.event_destroy, missing);
  find_symbol(handle, "cuEventRecord", d.event_record, missing);
  find_symbol(handle, "cuEventQuery", d.event_query, missing);
  find_symbol(handle, "cuEventSynchronize", d.event_synchronize, missing);
  find_symbol(handle, "cuModuleLoadData", d.module_load_data, missing);
  find_symbol(handle, "cuModuleUnload", d.module_unload, missing);
  find_symbol(handle, "cuModuleGetFunction", d.module_get_function, missing);
  find_symbol(handle, "cuLaunchKernel", d.launch_kernel, missing);
  if (!missing.empty()) {
    ::dlclose(handle);  // safe: none of its functions has been called
    return fail(Errc::kUnsupported,
                std::string("the CUDA driver ") + library + " is too old: it lacks " + missing);
  }
  return d;
}

Result<const Driver*> driver() {
  static std::mutex mutex;
  static std::optional<Driver> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) {
    const char* const variable = std::getenv("SLUICE_CUDA_DRIVER");
    auto found = load_driver(variable != nullptr && *variable != '\0' ? variable : "libcuda.so.1");
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
