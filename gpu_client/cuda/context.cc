#include "gpu_client/cuda/context.h"

#include <utility>

namespace sluice::cuda {
namespace {

// What to say of a GPU that can't be had; CUDA_SUCCESS says nothing.
Result<void> usable(const Driver& d, CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return {};
  if (result == CUDA_ERROR_NO_DEVICE) return fail(Errc::kUnsupported, "no GPU on this machine");
  return fail(Errc::kUnsupported, what + ": " + describe(d, result));
}

Result<int> current_ordinal(const Driver& d) {
  CUdevice device = 0;
  if (d.ctx_get_device(&device) != CUDA_SUCCESS)
    return fail(Errc::kInvalidArgument,
                "device is -1, that of the current CUDA context, but this thread has none");
  return device;  // a CUdevice is its ordinal
}

}  // namespace

Result<std::shared_ptr<Context>> Context::retain(int ordinal) {
  const auto loaded = cuda::driver();
  if (!loaded) return tl::unexpected(loaded.error());
  const Driver& d = **loaded;
  if (auto up = usable(d, d.init(0), "the CUDA driver does not start"); !up)
    return tl::unexpected(std::move(up.error()));
  int count = 0;
  if (auto counted = usable(d, d.device_get_count(&count), "the GPUs can't be counted"); !counted)
    return tl::unexpected(std::move(counted.error()));
  if (count == 0) return fail(Errc::kUnsupported, "no GPU on this machine");
  if (ordinal == -1) {
    const auto current = current_ordinal(d);
    if (!current) return tl::unexpected(current.error());
    ordinal = *current;
  }
  if (ordinal < 0 || ordinal >= count)
    return fail(Errc::kInvalidArgument,
                "no GPU " + std::to_string(ordinal) + ": there are " + std::to_string(count));
  const std::string name = "GPU " + std::to_string(ordinal);
  CUdevice device = 0;
  if (auto got = usable(d, d.device_get(&device, ordinal), name); !got)
    return tl::unexpected(std::move(got.error()));
  CUcontext handle = nullptr;
  if (const CUresult r = d.device_primary_ctx_retain(&handle, device); r != CUDA_SUCCESS)
    return fail(Errc::kSystem, "no context on " + name + ": " + describe(d, r));
  auto context = std::make_shared<Context>(d, device, ordinal, handle);
  // Pinned memory has the same address for both sides, which all of this room builds upon.
  if (context->attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 0)
    return fail(Errc::kUnsupported, name + " does not share addresses with the host");
  return context;
}

Context::~Context() {
  (void)driver_.device_primary_ctx_release(device_);
}

Context::Entered::Entered(const Context& context) noexcept
    : driver_(context.driver_), result_(driver_.ctx_push_current(context.handle_)) {
  // Another thread that captures in the global mode would find its capture broken by our harmless queries.
  if (result_ == CUDA_SUCCESS) (void)driver_.thread_exchange_stream_capture_mode(&mode_);
}

Context::Entered::~Entered() {
  if (result_ != CUDA_SUCCESS) return;
  (void)driver_.thread_exchange_stream_capture_mode(&mode_);
  CUcontext ours = nullptr;
  (void)driver_.ctx_pop_current(&ours);
}

int Context::attribute(CUdevice_attribute which) const noexcept {
  int value = 0;
  return driver_.device_get_attribute(&value, which, device_) == CUDA_SUCCESS ? value : 0;
}

Status Context::check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  std::string words = "GPU " + std::to_string(ordinal_) + ": " + what + ": " + describe(driver_, result);
  const std::lock_guard lock(mutex_);
  last_words_ = std::move(words);
  return Errc::kSystem;
}

std::string Context::last_words() const {
  const std::lock_guard lock(mutex_);
  return last_words_;
}

}  // namespace sluice::cuda
