// The three stages that an allreduce on a stream goes through, each alone: the copies out of a device, the
// network, the copies back. Over the same pieces, in staging of the same shape and by the same calls as the
// pipeline's (gpu_client/pipeline/give.cc), but one stage after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/e2e/worker_session.h"
#include "bench/gpu/bench_device.h"
#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/round.h"
#include "gpu_client/pipeline/staging.h"
#include "wire/dtype.h"

namespace sluice::bench {

struct PieceOptions {
  uint64_t staging_bytes = 64 * kMiB;
  uint64_t piece_bytes = 4 * kMiB;
  pipeline::WireCast wire = pipeline::WireCast::kNone;  // of sums and averages of float
};

// How elements of this type and operator travel.
[[nodiscard]] pipeline::WireCast cast_of(const PieceOptions& options, wire::DType dtype,
                                         wire::Op op) noexcept;

class Stages {
 public:
  // Both outlive it; `session` is one without streams. `options` are such as a session has taken.
  Stages(BenchDevice& device, WorkerSession& session, const PieceOptions& options);

  // What the stages do from now on. The buffers are of the device.
  void prepare(const std::byte* send, std::byte* recv, uint64_t count, wire::DType dtype, wire::Op op);
  [[nodiscard]] uint64_t pieces() const noexcept { return pieces_.size(); }

  // Each returns when it is done. network() is collective, over what copy_out() has left in the staging.
  void copy_out();
  void network();
  void copy_in();

 private:
  struct Piece {
    std::vector<pipeline::Segment> segments;
    pipeline::Cast cast;  // but for the exponents
    uint64_t count = 0;
    size_t round = 0;
    pipeline::Place* place = nullptr;
  };

  // Of a scaled round, in a place of its own.
  [[nodiscard]] pipeline::Place& exponents_of(size_t round) noexcept {
    return *exponents_[round % exponents_.size()];
  }
  [[nodiscard]] bool is_scaled() const noexcept { return cast_ == pipeline::WireCast::kScaledF16; }
  [[nodiscard]] pipeline::Cast cast_with(const Piece& piece, const std::byte* exponents) const noexcept;

  BenchDevice& device_;
  WorkerSession& session_;
  const PieceOptions options_;
  pipeline::Staging staging_;
  std::vector<pipeline::Place*> places_, exponents_;
  std::vector<pipeline::Round> rounds_;
  std::vector<Piece> pieces_;
  pipeline::WireCast cast_ = pipeline::WireCast::kNone;
  wire::DType wire_dtype_ = wire::DType::kF32;
  wire::Op op_ = wire::Op::kSum;
  std::vector<sluice_request> open_;  // of pieces, by their number
};

}  // namespace sluice::bench
