// Class Stages runs each of the three stages of an allreduce on a stream alone: the copies from the device,
// the network operations, and the copies to the device. The pieces, the staging memory and the calls are
// those of the pipeline (gpu_client/pipeline/streams_enqueue.cc), but the stages do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/e2e/worker/worker_session.h"
#include "bench/gpu/bench_device.h"
#include "core/units.h"
#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/segments.h"
#include "gpu_client/pipeline/staging.h"
#include "wire/dtype.h"

namespace sluice::bench {

struct PieceOptions {
  uint64_t staging_bytes = 64 * kMiB;
  uint64_t piece_bytes = 4 * kMiB;
  pipeline::WireCast wire = pipeline::WireCast::kNone;  // wire type of sums and averages of float
};

class Stages {
 public:
  // `device` and `session` must outlive the object; `session` has no streams. A session must accept
  // `options`.
  Stages(BenchDevice& device, WorkerSession& session, const PieceOptions& options);

  // Sets the operation of the stages. The buffers are device memory.
  void prepare(const std::byte* send, std::byte* recv, uint64_t count, wire::DType dtype, wire::Op op);
  [[nodiscard]] uint64_t pieces() const noexcept { return pieces_.size(); }

  // Each function returns when its stage is complete. network() is collective and reduces the data that
  // copy_out() stored in the staging memory.
  void copy_out();
  void network();
  void copy_in();

 private:
  struct Piece {
    std::vector<pipeline::BufferRange> ranges;
    pipeline::Cast cast;  // without the exponents
    uint64_t count = 0;
    size_t batch = 0;
    pipeline::StagingBuffer* buffer = nullptr;
  };

  // Returns the exponent buffer of a scaled batch.
  [[nodiscard]] pipeline::StagingBuffer& exponents_of(size_t batch) noexcept {
    return *exponents_[batch % exponents_.size()];
  }
  [[nodiscard]] bool is_scaled() const noexcept { return cast_ == pipeline::WireCast::kScaledF16; }
  [[nodiscard]] pipeline::Cast cast_with(const Piece& piece, const std::byte* exponents) const noexcept;

  BenchDevice& device_;
  WorkerSession& session_;
  const PieceOptions options_;
  pipeline::Staging staging_;
  std::vector<pipeline::StagingBuffer*> buffers_, exponents_;
  std::vector<pipeline::Batch> batches_;
  std::vector<Piece> pieces_;
  pipeline::WireCast cast_ = pipeline::WireCast::kNone;
  wire::DType wire_dtype_ = wire::DType::kF32;
  wire::Op op_ = wire::Op::kSum;
  std::vector<sluice_request> requests_;  // by the index of the piece
};

}  // namespace sluice::bench
