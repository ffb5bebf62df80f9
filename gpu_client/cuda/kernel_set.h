// Class KernelSet holds the kernels of kernels.cu, loaded on one GPU from the fat binary inside this library.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu_client/cuda/context.h"
#include "gpu_client/cuda/kernels.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::cuda {

class KernelSet {
 public:
  // Selects the buffer of a BufferRange.
  enum class Side : uint8_t { kSend, kRecv };

  // `warm_up` is an idle stream of the context; each kernel is launched on it once. Returns kUnsupported if
  // the binary has no code for this GPU or needs a newer driver.
  [[nodiscard]] static Result<std::unique_ptr<KernelSet>> load(std::shared_ptr<Context> context,
                                                               CUstream warm_up);
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  // These enqueue as the functions of pipeline::Device do. The context must be current. All ranges are GPU or
  // managed memory; staging and exponents are pinned.
  // transfer() copies from the send parts into staging, or from staging into the recv parts.
  CUresult transfer(CUstream stream, std::span<const pipeline::BufferRange> ranges, Side side,
                    std::byte* staging, const pipeline::Cast& cast);
  CUresult find_exponents(CUstream stream, std::span<const pipeline::BufferRange> ranges, uint8_t* exponents);

  // Reads the sum of all errors so far after the work enqueued on `stream`. The context must be current. The
  // caller must have synchronized with all other streams that were passed to transfer().
  CUresult read_error(CUstream stream, pipeline::CastError& error);

 private:
  explicit KernelSet(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  CUresult prepare(CUstream warm_up);
  // Copies with one driver call for each range.
  CUresult copy_ranges(CUstream stream, std::span<const pipeline::BufferRange> ranges, Side side,
                       std::byte* staging, uint32_t element_bytes);
  CUresult launch(CUfunction kernel, uint64_t blocks, CUstream stream, Launch& parameters) const;

  const std::shared_ptr<Context> context_;
  CUmodule module_ = nullptr;
  CUfunction gather_cast_ = nullptr;
  CUfunction scatter_cast_ = nullptr;
  CUfunction gather_bytes_ = nullptr;
  CUfunction scatter_bytes_ = nullptr;
  CUfunction gather_blocks_ = nullptr;
  CUfunction scatter_blocks_ = nullptr;
  CUfunction find_exponents_ = nullptr;
  CUdeviceptr error_ = 0;                      // a CastError in GPU memory
  pipeline::CastError* host_error_ = nullptr;  // pinned; read_error() copies into it
};

}  // namespace sluice::cuda
