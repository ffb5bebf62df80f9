// Copies between a GPU's memory and the host's pinned memory, which threads here read and write by
// themselves, with the cast on the way; and the search for exponents.
//
// No thread waits for another but in one place at the end of a kernel, behind which only the block's last
// thread goes on: so a processor that runs the threads of a block one after the other does the same, and
// tests/support/cuda_stand_in does.
#include "gpu_client/cuda/kernels.h"

namespace {

using sluice::cuda::kParts;
using sluice::cuda::kThreads;
using sluice::cuda::kTile;
using sluice::cuda::kTileBytes;
using sluice::cuda::Launch;
using sluice::cuda::Part;
using sluice::pipeline::CastError;
using sluice::pipeline::kScaleBlock;
using sluice::pipeline::WireCast;

struct alignas(16) FourFloats {
  float x[4];
};
struct alignas(8) FourHalves {
  uint16_t x[4];
};
struct alignas(16) Quad {
  uint32_t x[4];
};

__device__ inline uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

// By an address that is aligned to the type, whatever it was written as.
template <typename T>
__device__ inline T load(const uint8_t* at) {
  T x;
  __builtin_memcpy(&x, __builtin_assume_aligned(at, alignof(T)), sizeof(T));
  return x;
}
template <typename T>
__device__ inline void store(uint8_t* at, const T& x) {
  __builtin_memcpy(__builtin_assume_aligned(at, alignof(T)), &x, sizeof(T));
}
template <typename T>
__device__ inline bool aligned(const uint8_t* at) {
  return reinterpret_cast<uintptr_t>(at) % alignof(T) == 0;
}
template <typename T>
__device__ inline T load_anywhere(const uint8_t* at) {
  T x;
  if (aligned<T>(at)) return load<T>(at);
  __builtin_memcpy(&x, at, sizeof(T));
  return x;
}
template <typename T>
__device__ inline void store_anywhere(uint8_t* at, T x) {
  if (aligned<T>(at)) return store(at, x);
  __builtin_memcpy(at, &x, sizeof(T));
}

// The part that has the element `at` of the piece, which one has.
__device__ inline uint32_t part_of(const Launch& launch, uint64_t at) {
  uint32_t low = 0, high = launch.count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (launch.parts[middle].first <= at ? low : high) = middle;
  }
  return low;
}

// body(part, element in it, element in the piece, count) for runs of one part within [begin, end) that cross
// no edge: multiples of `edges`, counted with `offset` added. A block's threads all do the same runs.
template <typename Body>
__device__ inline void each_run(const Launch& launch, uint64_t begin, uint64_t end, uint64_t edges,
                                uint64_t offset, Body&& body) {
  for (uint32_t i = part_of(launch, begin); begin < end; ++i) {
    const Part& part = launch.parts[i];
    const uint64_t part_end = least(end, part.first + part.count);
    while (begin < part_end) {
      const uint64_t count = least(part_end - begin, edges - (begin + offset) % edges);
      body(part, begin - part.first, begin, count);
      begin += count;
    }
  }
}

template <typename Body>
__device__ inline void each_run_of_block(const Launch& launch, uint64_t tile, uint64_t edges, uint64_t offset,
                                         Body&& body) {
  const uint64_t first = launch.parts[0].first;
  for (uint64_t at = blockIdx.x * tile; at < launch.total; at += gridDim.x * tile)
    each_run(launch, first + at, first + least(at + tile, launch.total), edges, offset, body);
}

// x * 2^s. What a processor makes of a NaN, a quiet one with its sign and bits; a GPU would make one of its
// own.
__device__ inline float times(float x, float power) {
  const uint32_t bits = sluice::pipeline::bits_of(x);
  const float product = x * power;
  return (bits & 0x7fffffff) > 0x7f800000 ? sluice::pipeline::float_of(bits | 0x00400000) : product;
}

__device__ inline bool finite(float x) {
  return (sluice::pipeline::bits_of(x) & 0x7f800000) != 0x7f800000;
}

struct Bf16 {
  __device__ Bf16(const Launch&, uint64_t) {}
  __device__ uint16_t out(float x) const { return sluice::pipeline::to_bf16(x); }
  __device__ float in(uint16_t x) const { return sluice::pipeline::from_bf16(x); }
};

// Of one scale block.
struct ScaledF16 {
  __device__ ScaledF16(const Launch& launch, uint64_t in_piece) {
    const uint64_t block = (launch.round_first + in_piece) / kScaleBlock;
    const int32_t shift = sluice::pipeline::shift_of(launch.exponents[block], launch.top);
    power = sluice::pipeline::power_of_two(shift);
    inverse = sluice::pipeline::power_of_two(-shift);
  }
  __device__ uint16_t out(float x) const { return sluice::pipeline::to_f16(times(x, power)); }
  __device__ float in(uint16_t x) const { return times(sluice::pipeline::from_f16(x), inverse); }
  float power;
  float inverse;
};

// one(element) and four(element of the first) of `count`, by all threads of the block. Four at a time, where
// `memory` and `wire` allow it, since writes over PCIe that are wider cost less.
template <typename One, typename Four>
__device__ inline void by_fours(const uint8_t* memory, const uint8_t* wire, uint64_t count, One&& one,
                                Four&& four) {
  uint64_t head = count, fours = 0;
  if (aligned<float>(memory) && aligned<uint16_t>(wire)) {
    const uint64_t skip = (0 - reinterpret_cast<uintptr_t>(memory) / sizeof(float)) % 4;
    if (skip < count && aligned<FourHalves>(wire + skip * sizeof(uint16_t))) {
      head = skip;
      fours = (count - skip) / 4;
    }
  }
  for (uint64_t i = threadIdx.x; i < head; i += blockDim.x) one(i);
  for (uint64_t i = threadIdx.x; i < fours; i += blockDim.x) four(head + 4 * i);
  for (uint64_t i = head + 4 * fours + threadIdx.x; i < count; i += blockDim.x) one(i);
}

__device__ inline void add_to(double* sum, double x) {
  auto* const word = reinterpret_cast<unsigned long long*>(sum);
  unsigned long long was = 0, seen = atomicCAS(word, 0ULL, 0ULL);
  do {
    was = seen;
    const double next = __builtin_bit_cast(double, was) + x;
    seen = atomicCAS(word, was, __builtin_bit_cast(unsigned long long, next));
  } while (seen != was);
}

// All threads of the block; `mine` is what this one has seen.
__device__ inline void add_errors(CastError* sum, const CastError& mine) {
  __shared__ double errors[kThreads];
  __shared__ double values[kThreads];
  errors[threadIdx.x] = mine.error_squares;
  values[threadIdx.x] = mine.value_squares;
  __syncthreads();
  if (threadIdx.x + 1 != blockDim.x) return;
  double error = 0, value = 0;
  for (uint32_t i = 0; i < blockDim.x; ++i) {
    error += errors[i];
    value += values[i];
  }
  add_to(&sum->error_squares, error);
  add_to(&sum->value_squares, value);
}

template <typename Form>
__device__ inline void gather_as(const Launch& launch) {
  CastError mine;
  const auto cast = [&mine, &launch](const Form& form, float x) {
    const uint16_t sent = form.out(x);
    const float back = form.in(sent);
    if (launch.measure && finite(x) && finite(back)) {
      const double given = x, error = static_cast<double>(back) - given;
      mine.error_squares += error * error;
      mine.value_squares += given * given;
    }
    return sent;
  };
  each_run_of_block(launch, kTile, kScaleBlock, launch.round_first,
                    [&](const Part& part, uint64_t at, uint64_t in_piece, uint64_t count) {
                      const Form form(launch, in_piece);
                      const uint8_t* const from = part.memory + at * sizeof(float);
                      uint8_t* const to = launch.staging + in_piece * sizeof(uint16_t);
                      by_fours(
                          from, to, count,
                          [&](uint64_t i) {
                            const float x = load_anywhere<float>(from + i * sizeof(float));
                            store_anywhere(to + i * sizeof(uint16_t), cast(form, x));
                          },
                          [&](uint64_t i) {
                            const auto given = load<FourFloats>(from + i * sizeof(float));
                            FourHalves sent;
                            for (int k = 0; k < 4; ++k) sent.x[k] = cast(form, given.x[k]);
                            store(to + i * sizeof(uint16_t), sent);
                          });
                    });
  if (launch.measure) add_errors(launch.error, mine);
}

template <typename Form>
__device__ inline void scatter_as(const Launch& launch) {
  each_run_of_block(launch, kTile, kScaleBlock, launch.round_first,
                    [&](const Part& part, uint64_t at, uint64_t in_piece, uint64_t count) {
                      const Form form(launch, in_piece);
                      const uint8_t* const from = launch.staging + in_piece * sizeof(uint16_t);
                      uint8_t* const to = part.memory + at * sizeof(float);
                      by_fours(
                          to, from, count,
                          [&](uint64_t i) {
                            const auto x = load_anywhere<uint16_t>(from + i * sizeof(uint16_t));
                            store_anywhere(to + i * sizeof(float), form.in(x));
                          },
                          [&](uint64_t i) {
                            const auto sent = load<FourHalves>(from + i * sizeof(uint16_t));
                            FourFloats result;
                            for (int k = 0; k < 4; ++k) result.x[k] = form.in(sent.x[k]);
                            store(to + i * sizeof(float), result);
                          });
                    });
}

// `from` and `to` are as far from a Word's alignment as each other.
template <typename Word>
__device__ inline void copy_by(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  const uint64_t head = least(bytes, (0 - reinterpret_cast<uintptr_t>(to)) % sizeof(Word));
  const uint64_t words = (bytes - head) / sizeof(Word);
  for (uint64_t i = threadIdx.x; i < head; i += blockDim.x) to[i] = from[i];
  for (uint64_t i = threadIdx.x; i < words; i += blockDim.x)
    store(to + head + i * sizeof(Word), load<Word>(from + head + i * sizeof(Word)));
  for (uint64_t i = head + words * sizeof(Word) + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

__device__ inline void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  const uintptr_t apart = reinterpret_cast<uintptr_t>(to) ^ reinterpret_cast<uintptr_t>(from);
  if (apart % sizeof(Quad) == 0) return copy_by<Quad>(to, from, bytes);
  if (apart % sizeof(uint32_t) == 0) return copy_by<uint32_t>(to, from, bytes);
  copy_by<uint8_t>(to, from, bytes);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreads) gather_cast(const Launch launch) {
  if (launch.wire == WireCast::kBf16)
    gather_as<Bf16>(launch);
  else
    gather_as<ScaledF16>(launch);
}

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreads) scatter_cast(const Launch launch) {
  if (launch.wire == WireCast::kBf16)
    scatter_as<Bf16>(launch);
  else
    scatter_as<ScaledF16>(launch);
}

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreads) gather_bytes(const Launch launch) {
  each_run_of_block(launch, kTileBytes, kTileBytes, 0,
                    [&](const Part& part, uint64_t at, uint64_t in_piece, uint64_t count) {
                      copy(launch.staging + in_piece, part.memory + at, count);
                    });
}

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreads) scatter_bytes(const Launch launch) {
  each_run_of_block(launch, kTileBytes, kTileBytes, 0,
                    [&](const Part& part, uint64_t at, uint64_t in_piece, uint64_t count) {
                      copy(part.memory + at, launch.staging + in_piece, count);
                    });
}

// A scale block belongs to one block of threads, for bytes of the host's memory know no atomics. The first
// may have begun in the launch before: then what that found counts too.
extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreads) find_exponents(const Launch launch) {
  __shared__ uint8_t seen[kThreads];
  const uint64_t first = launch.parts[0].first;
  const uint64_t block = first / kScaleBlock + blockIdx.x;
  const uint64_t begin = block * kScaleBlock;
  const uint64_t end = least(begin + kScaleBlock, first + launch.total);
  uint8_t most = 0;
  each_run(launch, begin > first ? begin : first, end, kScaleBlock, 0,
           [&](const Part& part, uint64_t at, uint64_t, uint64_t count) {
             for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
               const float x = load_anywhere<float>(part.memory + (at + i) * sizeof(float));
               const uint8_t exponent = sluice::pipeline::exponent_of(x);
               most = exponent > most ? exponent : most;
             }
           });
  seen[threadIdx.x] = most;
  __syncthreads();
  if (threadIdx.x + 1 != blockDim.x) return;
  if (begin < first && launch.found[block] > most) most = launch.found[block];
  for (uint32_t i = 0; i < blockDim.x; ++i) most = seen[i] > most ? seen[i] : most;
  launch.found[block] = most;
}
