#include "gpu_client/pipeline/round.h"

#include <algorithm>

#include "core/units.h"

namespace sluice::pipeline {
namespace {

constexpr uint32_t kPieceMultiple = 64 * kKiB;
constexpr uint64_t kLeastPiece = kMiB;
constexpr uint64_t kPiecesOfRound = 8;

uint64_t wire_bytes(const Round& round) noexcept {
  return round.count * wire::size_of(round.wire_dtype());
}

bool fits(const Round& round, const Tensor& tensor, uint64_t fusion_bytes) noexcept {
  return round.stream == tensor.stream && round.dtype == tensor.dtype && round.op == tensor.op &&
         round.cast == tensor.cast && tensor.stageable && tensor.count <= kMostRoundElements - round.count &&
         wire_bytes(round) + tensor.count * wire::size_of(round.wire_dtype()) <= fusion_bytes;
}

}  // namespace

wire::DType Round::wire_dtype() const noexcept {
  switch (cast) {
    case WireCast::kBf16: return wire::DType::kBf16;
    case WireCast::kScaledF16: return wire::DType::kF16;
    case WireCast::kNone: break;
  }
  return dtype;
}

std::vector<Round> make_rounds(const std::vector<Tensor>& tensors, uint64_t fusion_bytes) {
  std::vector<Round> rounds;
  bool open = false;  // the last round takes more
  for (const Tensor& tensor : tensors) {
    if (open && fits(rounds.back(), tensor, fusion_bytes)) {
      Round& round = rounds.back();
      round.segments.push_back({tensor.send, tensor.recv, tensor.count});
      round.count += tensor.count;
      round.staged = true;  // the network takes one buffer
      continue;
    }
    const size_t size = wire::size_of(tensor.dtype);
    for (uint64_t first = 0; first < tensor.count; first += kMostRoundElements) {
      Round round;
      round.count = std::min(tensor.count - first, kMostRoundElements);
      round.segments.push_back({tensor.send + first * size, tensor.recv + first * size, round.count});
      round.dtype = tensor.dtype;
      round.op = tensor.op;
      round.stream = tensor.stream;
      round.cast = tensor.cast;
      round.staged = tensor.staged || tensor.cast != WireCast::kNone;
      rounds.push_back(std::move(round));
    }
    open = tensor.stageable;
  }
  return rounds;
}

uint64_t piece_elements(uint64_t round_elements, uint32_t wire_bytes, uint32_t piece_bytes) noexcept {
  const uint64_t wanted = round_up(div_ceil(round_elements * wire_bytes, kPiecesOfRound), kPieceMultiple);
  const uint64_t least = std::min<uint64_t>(kLeastPiece, piece_bytes);
  return std::clamp<uint64_t>(wanted, least, piece_bytes) / wire_bytes;
}

void take_segments(const std::vector<Segment>& segments, uint64_t first, uint64_t count,
                   uint32_t element_bytes, std::vector<Segment>& out) {
  out.clear();
  for (const Segment& segment : segments) {
    if (count == 0) return;
    if (first >= segment.count) {
      first -= segment.count;
      continue;
    }
    const uint64_t taken = std::min(segment.count - first, count);
    out.push_back({segment.send + first * element_bytes, segment.recv + first * element_bytes, taken});
    first = 0;
    count -= taken;
  }
}

}  // namespace sluice::pipeline
