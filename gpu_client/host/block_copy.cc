#include "gpu_client/host/block_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/payload/block_codec.h"

namespace sluice::host {
namespace {

using pipeline::BufferRange;
using pipeline::Cast;
using pipeline::CastError;

// Class BlockCursor divides the ranges of a segment into blocks.
class BlockCursor {
 public:
  explicit BlockCursor(std::span<const BufferRange> ranges) noexcept : ranges_(ranges) { skip_empty(); }

  [[nodiscard]] bool is_at_end() const noexcept { return ranges_.empty(); }

  // Calls body(range, index in the range, index in the block, count) for the runs of the next block. Returns
  // the number of elements of the block.
  template <typename Body>
  size_t next(Body&& body) noexcept {
    size_t in_block = 0;
    while (in_block < wire::kBlockValues && !ranges_.empty()) {
      const BufferRange& range = ranges_.front();
      const size_t count = std::min<uint64_t>(range.count - at_, wire::kBlockValues - in_block);
      body(range, at_, in_block, count);
      in_block += count;
      at_ += count;
      skip_empty();
    }
    return in_block;
  }

 private:
  void skip_empty() noexcept {
    while (!ranges_.empty() && at_ == ranges_.front().count) ranges_ = ranges_.subspan(1), at_ = 0;
  }

  std::span<const BufferRange> ranges_;
  uint64_t at_ = 0;  // index in the first of ranges_
};

wire::DType type_of(const Cast& cast) noexcept {
  return cast.wire == pipeline::WireCast::kMxfp8 ? wire::DType::kMxfp8 : wire::DType::kInt8Block;
}

struct Block {
  std::array<float, wire::kBlockValues> values;   // with the residuals
  std::array<float, wire::kBlockValues> decoded;  // what other ranks see
};

void add_residual(float* values, const float* residual, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) values[i] += residual[i];
}

// A value that is not finite, or overflows the format, leaves no residual: it would stay for ever.
void store_residual(const float* values, const float* decoded, float* residual, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const float rest = values[i] - decoded[i];
    residual[i] = is_finite(rest) ? rest : 0.0F;
  }
}

void measure(const Block& block, size_t count, CastError& error) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const double x = block.values[i];
    const double y = block.decoded[i];
    if (!is_finite(block.values[i]) || !is_finite(block.decoded[i])) continue;
    error.error_squares += (y - x) * (y - x);
    error.value_squares += x * x;
  }
}

}  // namespace

void gather_blocks(std::span<const BufferRange> ranges, std::byte* staging, const Cast& cast,
                   CastError& error) noexcept {
  const wire::DType type = type_of(cast);
  wire::Rounding rounding{.stochastic = cast.stochastic, .seed = cast.seed, .first = cast.first};
  BlockCursor reader(ranges);
  BlockCursor writer(ranges);
  Block block;
  for (; !reader.is_at_end(); staging += wire::kBlockBytes, rounding.first += wire::kBlockValues) {
    bool has_residual = false;
    const auto load = [&](const BufferRange& range, uint64_t at, size_t in_block, size_t count) noexcept {
      std::memcpy(&block.values[in_block], range.send + at * sizeof(float), count * sizeof(float));
      if (range.residual == nullptr) return;
      has_residual = true;
      add_residual(&block.values[in_block], range.residual + at, count);
    };
    const size_t count = reader.next(load);
    wire::encode_blocks(type, block.values.data(), count, staging, rounding);
    if (!has_residual && !cast.measure) {
      (void)writer.next([](const BufferRange&, uint64_t, size_t, size_t) noexcept {});
      continue;
    }
    wire::decode_blocks(type, staging, count, block.decoded.data());
    if (cast.measure) measure(block, count, error);
    const auto store = [&](const BufferRange& range, uint64_t at, size_t in_block, size_t run) noexcept {
      if (range.residual == nullptr) return;
      store_residual(&block.values[in_block], &block.decoded[in_block], range.residual + at, run);
    };
    (void)writer.next(store);
  }
}

void scatter_blocks(const std::byte* staging, std::span<const BufferRange> ranges,
                    const Cast& cast) noexcept {
  const wire::DType type = type_of(cast);
  BlockCursor cursor(ranges);
  std::array<float, wire::kBlockValues> values;
  for (; !cursor.is_at_end(); staging += wire::kBlockBytes) {
    // Decodes the padding of the last block too.
    wire::decode_blocks(type, staging, values.size(), values.data());
    const auto store = [&](const BufferRange& range, uint64_t at, size_t in_block, size_t count) noexcept {
      std::memcpy(range.recv + at * sizeof(float), &values[in_block], count * sizeof(float));
    };
    (void)cursor.next(store);
  }
}

}  // namespace sluice::host
