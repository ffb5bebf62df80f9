// Memory of a GPU for programs that measure, and have no CUDA of their own. Sessions allocate none: what they
// reduce is a caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/result.h"

namespace sluice::cuda {

class Context;

// Those that the driver counts (CUDA_VISIBLE_DEVICES), at least 1. kUnsupported: there is none, with why.
[[nodiscard]] Result<int> count_gpus();

class DeviceMemory {
 public:
  // On GPU `ordinal`. Errors are open_cuda_device()'s, kSystem where the GPU has not so much.
  [[nodiscard]] static Result<DeviceMemory> allocate(int ordinal, uint64_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();
  // An address that the GPU alone follows.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  DeviceMemory(std::shared_ptr<Context> context, std::byte* data) noexcept;
  std::shared_ptr<Context> context_;
  std::byte* data_;
};

}  // namespace sluice::cuda
