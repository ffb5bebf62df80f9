// What a GPU's streams and the host share: pinned memory and events.
#pragma once

#include <memory>

#include "gpu_client/cuda/context.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::cuda {

[[nodiscard]] Result<std::unique_ptr<pipeline::Pinned>> pin(std::shared_ptr<Context> context, size_t bytes);

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

// Device::look_at on the context's GPU.
[[nodiscard]] Result<pipeline::Device::Where> look_at(Context& context, const void* at, uint64_t bytes);

}  // namespace sluice::cuda
