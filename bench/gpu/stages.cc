#include "bench/gpu/stages.h"

#include <algorithm>
#include <utility>

#include "bench/e2e/exit_codes.h"
#include "core/units.h"

namespace sluice::bench {

using pipeline::Cast;
using pipeline::Place;
using pipeline::WireCast;

WireCast cast_of(const PieceOptions& options, wire::DType dtype, wire::Op op) noexcept {
  const bool added = op == wire::Op::kSum || op == wire::Op::kAvg;
  return dtype == wire::DType::kF32 && added ? options.wire : WireCast::kNone;
}

Stages::Stages(BenchDevice& device, WorkerSession& session, const PieceOptions& options)
    : device_(device),
      session_(session),
      options_(options),
      staging_(value_or_fail(pipeline::Staging::make(device.device(), options.staging_bytes,
                                                     static_cast<uint32_t>(options.piece_bytes),
                                                     options.wire == WireCast::kScaledF16),
                             kExitFailure)) {
  for (size_t i = 0; i < staging_.places(); ++i) places_.push_back(&staging_.next_piece());
  for (size_t i = 0; i < pipeline::Staging::kExponentPlaces; ++i)
    exponents_.push_back(&staging_.next_exponents());
  session_.use_memory(staging_.bytes().data(), staging_.bytes().size());
}

void Stages::prepare(const std::byte* send, std::byte* recv, uint64_t count, wire::DType dtype, wire::Op op) {
  cast_ = cast_of(options_, dtype, op);
  op_ = op;
  pieces_.clear();
  rounds_ = pipeline::make_rounds(
      {{.send = send, .recv = recv, .count = count, .dtype = dtype, .op = op, .cast = cast_, .staged = true}},
      0);
  for (size_t r = 0; r < rounds_.size(); ++r) {
    const pipeline::Round& round = rounds_[r];
    wire_dtype_ = round.wire_dtype();
    Cast cast{.wire = cast_, .element_bytes = static_cast<uint32_t>(wire::size_of(dtype))};
    cast.top = pipeline::scale_top(op == wire::Op::kAvg ? 1 : session_.ranks());
    const uint64_t most =
        pipeline::piece_elements(round.count, cast.wire_bytes(), static_cast<uint32_t>(options_.piece_bytes));
    for (; cast.first < round.count; cast.first += most) {
      Piece piece{
          .segments = {}, .cast = cast, .count = std::min(most, round.count - cast.first), .round = r};
      pipeline::take_segments(round.segments, cast.first, piece.count, cast.element_bytes, piece.segments);
      piece.place = places_[pieces_.size() % places_.size()];
      pieces_.push_back(std::move(piece));
    }
  }
  open_.resize(pieces_.size());
}

Cast Stages::cast_with(const Piece& piece, const std::byte* exponents) const noexcept {
  Cast cast = piece.cast;
  if (is_scaled()) cast.exponents = reinterpret_cast<const uint8_t*>(exponents);
  return cast;
}

void Stages::copy_out() {
  pipeline::Device& device = device_.device();
  for (size_t i = 0, round = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (is_scaled() && (i == 0 || piece.round != round)) {
      round = piece.round;
      device_.check(device.find_exponents(device.out(), rounds_[round].segments,
                                          reinterpret_cast<uint8_t*>(exponents_of(round).out)));
    }
    const Cast cast = cast_with(piece, exponents_of(piece.round).out);
    device_.check(device.gather(device.out(), piece.segments, piece.place->out, cast));
    device_.check(device.record(*piece.place->free, device.out()));
  }
  device_.drain(device.out());
}

void Stages::network() {
  size_t waited = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (is_scaled() && (i == 0 || piece.round != pieces_[i - 1].round)) {
      const Place& place = exponents_of(piece.round);
      session_.allreduce(place.out, place.in, div_ceil(rounds_[piece.round].count, pipeline::kScaleBlock),
                         wire::DType::kU8, wire::Op::kMax);
    }
    // The result before it has left the place that this one's goes to.
    if (i >= places_.size()) session_.wait(open_[waited++]);
    open_[i] = session_.start(piece.place->out, piece.place->in, piece.count, wire_dtype_, op_);
  }
  for (; waited < pieces_.size(); ++waited) session_.wait(open_[waited]);
}

void Stages::copy_in() {
  pipeline::Device& device = device_.device();
  for (const Piece& piece : pieces_) {
    const Cast cast = cast_with(piece, exponents_of(piece.round).in);
    device_.check(device.scatter(device.in(), piece.place->in, piece.segments, cast));
    device_.check(device.record(*piece.place->free, device.in()));
  }
  device_.drain(device.in());
}

}  // namespace sluice::bench
