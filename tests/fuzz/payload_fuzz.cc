// Fuzzes wire/payload: sparse payloads and blocks, valid ones and arbitrary bytes. Nothing may be read or
// written outside of the given memory, and the outcome must equal that of payload_model.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "core/assert.h"
#include "tests/fuzz/payload_model.h"
#include "wire/payload/block_codec.h"
#include "wire/payload/sparse.h"

namespace sluice::fuzz {
namespace {

using wire::DType;

// Larger payloads differ only in the size of the bitmap.
constexpr size_t kLarge = 256 * 1024;

// Memory of exactly this size, so that ASan detects an access beyond it.
template <typename T>
std::unique_ptr<T[]> exact_copy(std::span<const T> values, size_t size) {
  auto out = std::make_unique<T[]>(size);
  std::ranges::copy(values.first(std::min(size, values.size())), out.get());
  return out;
}

DType take_dtype(Input& in) {
  return static_cast<DType>(in.below(wire::kDTypeCount));
}

void check_encoding(const Bytes& payload, DType t) {
  const size_t size = payload.size();
  const auto plain = exact_copy<std::byte>(payload, size);
  const size_t length = wire::sparse_length({plain.get(), size}, t);
  const Bytes expected = sparse_payload(payload, t);
  // A sparse payload saves an eighth, and at least 64 bytes.
  const size_t saved = size - std::min(size, expected.size());
  const bool pays = size >= 128 && saved >= std::max<size_t>((size + 7) / 8, 64);
  SLUICE_ASSERT(length == (pays ? expected.size() : 0));
  if (length == 0) return;
  SLUICE_ASSERT(length < size);
  const auto sparse = exact_copy<std::byte>({}, length);
  SLUICE_ASSERT(wire::encode_sparse({plain.get(), size}, t, sparse.get()) == length);
  SLUICE_ASSERT(std::ranges::equal(std::span(sparse.get(), length), expected));
  SLUICE_ASSERT(std::ranges::equal(std::span(plain.get(), size), payload));
  SLUICE_ASSERT(wire::encode_sparse({plain.get(), size}, t, plain.get()) == length);
  SLUICE_ASSERT(std::ranges::equal(std::span(plain.get(), length), expected));
  // What follows the sparse payload in the slot has no influence.
  std::fill(plain.get() + length, plain.get() + size, std::byte{0xe7});
  SLUICE_ASSERT(wire::expand_sparse(plain.get(), length, size, t));
  SLUICE_ASSERT(std::ranges::equal(std::span(plain.get(), size), payload));
}

// Zero blocks, and blocks with one byte that is not zero, as the input has them.
void fuzz_sparse_encoding(Input& in) {
  const DType t = take_dtype(in);
  const size_t most = in.below(64) == 0 ? kLarge : 4096;
  Bytes payload(in.take<uint32_t>() % (most + 1));
  const size_t block = wire::is_block(t) ? wire::kBlockBytes : 64 * wire::size_of(t);
  for (size_t at = 0; at < payload.size() && !in.empty(); at += block) {
    const auto value = static_cast<std::byte>(in.u8());
    if (value == std::byte{0}) continue;
    payload[at + in.take<uint16_t>() % std::min(block, payload.size() - at)] = value;
  }
  check_encoding(payload, t);
}

// Arbitrary bytes as a sparse payload of arbitrary lengths.
void fuzz_expansion(Input& in) {
  const DType t = take_dtype(in);
  const bool large = in.below(64) == 0;
  const size_t expanded = in.take<uint32_t>() % (large ? kLarge + 1 : 8192);
  // All of the input, or as many zeros before it as the last bytes, the bitmap, need.
  const size_t zeros = in.u8() % 2 == 0 ? 0 : in.take<uint16_t>();
  Bytes sparse(zeros);
  const auto rest = in.at_most(in.left());
  sparse.insert(sparse.end(), rest.begin(), rest.end());
  const auto memory = exact_copy<std::byte>(sparse, std::max(sparse.size(), expanded));
  const auto expected = expand_payload(sparse, expanded, t);
  const bool accepted = wire::expand_sparse(memory.get(), sparse.size(), expanded, t);
  SLUICE_ASSERT(accepted == expected.has_value());
  if (!accepted) return;
  SLUICE_ASSERT(std::ranges::equal(std::span(memory.get(), expanded), *expected));
  // The encoder leaves out every zero block, so its payload is the shortest.
  const Bytes shortest = sparse_payload(*expected, t);
  SLUICE_ASSERT(shortest.size() < sparse.size() || shortest == sparse);
  check_encoding(*expected, t);
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Arbitrary bytes as blocks.
void fuzz_decoding(Input& in) {
  const DType t = in.below(2) == 0 ? DType::kMxfp8 : DType::kInt8Block;
  const uint8_t missing = in.u8();  // the last values are not decoded
  const size_t count = 1 + in.left() / wire::kBlockBytes;
  const Bytes bytes = in.exactly(count * wire::kBlockBytes);
  const auto blocks = exact_copy<std::byte>(bytes, bytes.size());
  const bool valid = wire::are_valid_blocks(t, {blocks.get(), bytes.size()});
  SLUICE_ASSERT(valid == has_valid_elements(bytes, t));
  const size_t values = count * wire::kBlockValues - missing;
  const auto decoded = exact_copy<float>({}, values);
  wire::decode_blocks(t, blocks.get(), values, decoded.get());
  if (!valid) return;
  const std::vector<float> expected = values_of_blocks(bytes, t);
  for (size_t i = 0; i < values; ++i) SLUICE_ASSERT(same(decoded[i], expected[i]));
}

// Arbitrary floats into blocks and back.
void fuzz_encoding(Input& in) {
  const DType t = in.below(2) == 0 ? DType::kMxfp8 : DType::kInt8Block;
  const uint8_t choice = in.u8();
  wire::Rounding rounding{.stochastic = (choice & 1) != 0};
  if (rounding.stochastic) rounding.seed = in.take<uint64_t>();
  if (rounding.stochastic) rounding.first = in.take<uint32_t>();
  // Few different values, or one for each 4 bytes of the input.
  const size_t count = 1 + ((choice & 2) != 0 ? in.take<uint16_t>() % 1024 : in.left() / sizeof(float));
  std::vector<float> values{in.take<float>()};
  while (values.size() < count) values.push_back(in.empty() ? values.front() : in.take<float>());
  const auto exact = exact_copy<float>(values, count);
  const size_t blocks = (count + wire::kBlockValues - 1) / wire::kBlockValues;
  const size_t bytes = blocks * wire::kBlockBytes;
  const auto encoded = exact_copy<std::byte>({}, bytes);
  wire::encode_blocks(t, exact.get(), count, encoded.get(), rounding);
  SLUICE_ASSERT(wire::are_valid_blocks(t, {encoded.get(), bytes}));
  // Values beyond the end are zeros.
  values.resize(blocks * wire::kBlockValues);
  const auto padded = exact_copy<std::byte>({}, bytes);
  wire::encode_blocks(t, values.data(), values.size(), padded.get(), rounding);
  SLUICE_ASSERT(std::ranges::equal(std::span(encoded.get(), bytes), std::span(padded.get(), bytes)));

  std::vector<float> decoded(values.size());
  wire::decode_blocks(t, encoded.get(), decoded.size(), decoded.data());
  const std::vector<float> expected = values_of_blocks({encoded.get(), bytes}, t);
  const size_t group = t == DType::kMxfp8 ? 1 : 128;  // one value that is not finite makes these NaN
  for (size_t at = 0; at < values.size(); at += group) {
    const bool finite =
        std::all_of(&values[at], values.data() + at + group, [](float v) { return std::isfinite(v); });
    for (size_t i = at; i < at + group; ++i) {
      SLUICE_ASSERT(same(decoded[i], expected[i]));
      SLUICE_ASSERT(std::isnan(decoded[i]) == !finite);
      if (finite && decoded[i] != 0) SLUICE_ASSERT(std::signbit(decoded[i]) == std::signbit(values[i]));
    }
  }
  // Values that blocks can hold do not change when they are encoded again.
  std::vector<float> again(values.size());
  wire::encode_blocks(t, decoded.data(), decoded.size(), padded.get());
  wire::decode_blocks(t, padded.get(), again.size(), again.data());
  for (size_t i = 0; i < again.size(); ++i) {
    // The largest codes of mxfp8 may overflow.
    SLUICE_ASSERT(std::isinf(decoded[i]) ? std::isnan(again[i]) : same(again[i], decoded[i]));
  }
}

}  // namespace

void fuzz_one(Input in) {
  switch (in.u8() % 4) {
    case 0: return fuzz_expansion(in);
    case 1: return fuzz_sparse_encoding(in);
    case 2: return fuzz_decoding(in);
    default: return fuzz_encoding(in);
  }
}

}  // namespace sluice::fuzz
