#include "gpu_client/cuda/device_memory.h"

#include <string>
#include <utility>

#include "gpu_client/cuda/context.h"
#include "gpu_client/cuda/driver.h"

namespace sluice::cuda {

Result<DeviceMemory> DeviceMemory::allocate(int ordinal, uint64_t bytes) {
  auto context = Context::retain(ordinal);
  if (!context) return tl::unexpected(std::move(context.error()));
  CUdeviceptr address = 0;
  const CUresult result = (*context)->invoke([&](const Driver& d) { return d.mem_alloc(&address, bytes); });
  const std::string what = "cannot allocate " + std::to_string(bytes) + " bytes";
  if (const Status s = (*context)->check(result, what.c_str()); !s.ok())
    return fail(s.code(), (*context)->last_error());
  return DeviceMemory(std::move(*context), reinterpret_cast<std::byte*>(address));
}

DeviceMemory::DeviceMemory(std::shared_ptr<Context> context, std::byte* data) noexcept
    : context_(std::move(context)), data_(data) {}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : context_(std::move(other.context_)), data_(std::exchange(other.data_, nullptr)) {}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  (void)context_->invoke(
      [this](const Driver& d) { return d.mem_free(reinterpret_cast<CUdeviceptr>(data_)); });
}

}  // namespace sluice::cuda
