#include "bench/gpu/stages.h"

#include <algorithm>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/workload/wire_pattern.h"
#include "core/units.h"

namespace sluice::bench {

using pipeline::Cast;
using pipeline::StagingBuffer;
using pipeline::WireCast;

Stages::Stages(BenchDevice& device, WorkerSession& session, const PieceOptions& options)
    : device_(device),
      session_(session),
      options_(options),
      staging_(value_or_fail(pipeline::Staging::make(device.device(), options.staging_bytes,
                                                     static_cast<uint32_t>(options.piece_bytes),
                                                     options.wire == WireCast::kScaledF16),
                             kExitFailure)) {
  for (size_t i = 0; i < staging_.buffer_count(); ++i) buffers_.push_back(&staging_.next_segment_buffer());
  for (size_t i = 0; i < pipeline::Staging::kExponentBuffers; ++i)
    exponents_.push_back(&staging_.next_exponent_buffer());
  session_.register_memory(staging_.bytes().data(), staging_.bytes().size());
}

void Stages::prepare(const std::byte* send, std::byte* recv, uint64_t count, wire::DType dtype, wire::Op op) {
  cast_ = cast_of(options_.wire, dtype, op);
  op_ = op;
  pieces_.clear();
  batches_ = pipeline::make_batches(
      {{.send = send, .recv = recv, .count = count, .dtype = dtype, .op = op, .cast = cast_, .staged = true}},
      0, 0);
  for (size_t b = 0; b < batches_.size(); ++b) {
    const pipeline::Batch& batch = batches_[b];
    wire_dtype_ = batch.wire_dtype();
    Cast cast{.wire = cast_, .element_bytes = static_cast<uint32_t>(wire::size_of(dtype))};
    cast.exponent_limit = pipeline::scaled_exponent_limit(op == wire::Op::kAvg ? 1 : session_.ranks());
    std::vector<pipeline::Run> runs;
    for (const pipeline::Band& band :
         pipeline::divide_into_segments(batch, static_cast<uint32_t>(options_.piece_bytes))) {
      Piece piece{.ranges = {}, .cast = cast, .count = 0, .batch = b};
      pipeline::append_runs(batch, band, pipeline::Side::kSend, piece.ranges, runs);
      piece.count = runs.back().elements;  // the only run of the segment
      piece.buffer = buffers_[pieces_.size() % buffers_.size()];
      cast.first += piece.count;
      pieces_.push_back(std::move(piece));
    }
  }
  requests_.resize(pieces_.size());
}

Cast Stages::cast_with(const Piece& piece, const std::byte* exponents) const noexcept {
  Cast cast = piece.cast;
  if (is_scaled()) cast.exponents = reinterpret_cast<const uint8_t*>(exponents);
  return cast;
}

void Stages::copy_out() {
  pipeline::Device& device = device_.device();
  for (size_t i = 0, batch = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (is_scaled() && (i == 0 || piece.batch != batch)) {
      batch = piece.batch;
      device_.check(device.find_exponents(device.copy_out_stream(), batches_[batch].parts.front().ranges,
                                          reinterpret_cast<uint8_t*>(exponents_of(batch).send)));
    }
    const Cast cast = cast_with(piece, exponents_of(piece.batch).send);
    device_.check(device.gather(device.copy_out_stream(), piece.ranges, piece.buffer->send, cast));
    device_.check(device.record(*piece.buffer->released, device.copy_out_stream()));
  }
  device_.drain(device.copy_out_stream());
}

void Stages::network() {
  size_t finished = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (is_scaled() && (i == 0 || piece.batch != pieces_[i - 1].batch)) {
      const StagingBuffer& exponents = exponents_of(piece.batch);
      session_.allreduce(exponents.send, exponents.recv,
                         div_ceil(batches_[piece.batch].count, pipeline::kScaleBlock), wire::DType::kU8,
                         wire::Op::kMax);
    }
    // The result before it has left the place that this one's goes to.
    if (i >= buffers_.size()) session_.wait(requests_[finished++]);
    requests_[i] = session_.start(piece.buffer->send, piece.buffer->recv,
                                  piece.cast.unit().count(piece.count), wire_dtype_, op_);
  }
  for (; finished < pieces_.size(); ++finished) session_.wait(requests_[finished]);
}

void Stages::copy_in() {
  pipeline::Device& device = device_.device();
  for (const Piece& piece : pieces_) {
    const Cast cast = cast_with(piece, exponents_of(piece.batch).recv);
    device_.check(device.scatter(device.copy_in_stream(), piece.buffer->recv, piece.ranges, cast));
    device_.check(device.record(*piece.buffer->released, device.copy_in_stream()));
  }
  device_.drain(device.copy_in_stream());
}

}  // namespace sluice::bench
