// Class DeviceMemory owns GPU memory for benchmarks that do not use CUDA themselves. Sessions do not allocate
// GPU memory; they reduce the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/result.h"

namespace sluice::cuda {

class Context;

// Returns the number of GPUs that the driver reports (CUDA_VISIBLE_DEVICES), at least 1. Returns kUnsupported
// with the cause if there is none.
[[nodiscard]] Result<int> count_gpus();

class DeviceMemory {
 public:
  // Allocates on GPU `ordinal`. Returns the errors of open_cuda_device(), and kSystem if the GPU is out of
  // memory.
  [[nodiscard]] static Result<DeviceMemory> allocate(int ordinal, uint64_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();
  // An address that only the GPU can access.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  DeviceMemory(std::shared_ptr<Context> context, std::byte* data) noexcept;
  std::shared_ptr<Context> context_;
  std::byte* data_;
};

}  // namespace sluice::cuda
