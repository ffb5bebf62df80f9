// Pinned memory and events of a GPU, and the location of memory. Both kinds of objects keep their context
// retained, so they may outlive the device.
#pragma once

#include <memory>

#include "gpu_client/cuda/context.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::cuda {

[[nodiscard]] Result<std::unique_ptr<pipeline::PinnedMemory>> allocate_pinned(
    std::shared_ptr<Context> context, size_t bytes);

class CudaEvent final : public pipeline::Event {
 public:
  [[nodiscard]] static Result<std::unique_ptr<pipeline::Event>> make(std::shared_ptr<Context> context);
  CudaEvent(std::shared_ptr<Context> context, CUevent handle) noexcept;
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  [[nodiscard]] CUevent handle() const noexcept { return handle_; }

 private:
  const std::shared_ptr<Context> context_;
  const CUevent handle_;
};

// Implements Device::locate for the context's GPU.
[[nodiscard]] Result<pipeline::Device::MemoryLocation> locate(Context& context, const void* address,
                                                              uint64_t bytes);

}  // namespace sluice::cuda
