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
#define SLUICE_FIND_FUNCTION(name, declaration, symbol) find_symbol(handle, symbol, d.name, missing);
  SLUICE_CUDA_FUNCTIONS(SLUICE_FIND_FUNCTION)
#undef SLUICE_FIND_FUNCTION
  find_symbol(handle, "cuCtxGetDevice", d.ctx_get_device, missing);
  find_symbol(handle, "cuStreamGetCtx", d.stream_get_ctx, missing);
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
