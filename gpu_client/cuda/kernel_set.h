// The kernels as one GPU runs them: loaded from what nvcc has compiled for all kinds of GPU into this
// library.
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
  // Of a segment.
  enum class Side : uint8_t { kSend, kRecv };

  // `warm`: a stream of the context's own, idle. kUnsupported: not for this GPU, or for a newer driver.
  [[nodiscard]] static Result<std::unique_ptr<KernelSet>> load(std::shared_ptr<Context> context,
                                                               CUstream warm);
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  // Within the context. All segments are of the GPU, or managed; staging and exponents are pinned.
  CUresult gather(CUstream stream, std::span<const pipeline::Segment> segments, std::byte* staging,
                  const pipeline::Cast& cast);
  CUresult scatter(CUstream stream, const std::byte* staging, std::span<const pipeline::Segment> segments,
                   const pipeline::Cast& cast);
  CUresult find_exponents(CUstream stream, std::span<const pipeline::Segment> segments, uint8_t* exponents);

  // Within the context, behind all gather() on `stream` alone: the caller has waited for the other streams.
  CUresult read_error(CUstream stream, pipeline::CastError& error);

 private:
  explicit KernelSet(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  CUresult prepare(CUstream warm);
  // Out of the send parts into staging, or out of staging into the recv parts.
  CUresult move(CUstream stream, std::span<const pipeline::Segment> segments, Side side, std::byte* staging,
                const pipeline::Cast& cast);
  CUresult copy(CUstream stream, std::span<const pipeline::Segment> segments, Side side, std::byte* staging,
                uint32_t element_bytes);
  CUresult launch(CUfunction kernel, uint64_t blocks, CUstream stream, Launch& parameters) const;

  const std::shared_ptr<Context> context_;
  CUmodule module_ = nullptr;
  CUfunction gather_cast_ = nullptr;
  CUfunction scatter_cast_ = nullptr;
  CUfunction gather_bytes_ = nullptr;
  CUfunction scatter_bytes_ = nullptr;
  CUfunction find_exponents_ = nullptr;
  CUdeviceptr error_ = 0;                // a CastError of the GPU's
  pipeline::CastError* read_ = nullptr;  // pinned
};

}  // namespace sluice::cuda
