// Kernels that copy between GPU memory and pinned host memory, which the GPU's threads access directly, and
// convert elements on the way; and the kernel that searches exponents.
//
// Each kernel has at most one barrier, at its end, after which only the block's last thread continues. So the
// result is the same if a CPU runs the threads of a block one after the other, as tests/support/cuda_stand_in
// does.
#include "gpu_client/cuda/kernels.h"

namespace {

using sluice::cuda::kThreadsPerBlock;
using sluice::cuda::kTileBytes;
using sluice::cuda::kTileElements;
using sluice::cuda::Launch;
using sluice::cuda::LaunchRange;
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

__device__ inline uint64_t min_u64(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

// Loads and stores at an address that is aligned to the type. The memory may hold another type.
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

// Returns the index of the range that contains the element `at` of the segment.
__device__ inline uint32_t range_index(const Launch& launch, uint64_t at) {
  uint32_t low = 0, high = launch.count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (launch.ranges[middle].first <= at ? low : high) = middle;
  }
  return low;
}

// Calls body(range, index in the range, index in the segment, count) for runs within [begin, end). A run lies
// in one range and does not cross a multiple of `step`, counted with `offset` added. All threads of a block
// see the same runs.
template <typename Body>
__device__ inline void each_run(const Launch& launch, uint64_t begin, uint64_t end, uint64_t step,
                                uint64_t offset, Body&& body) {
  for (uint32_t i = range_index(launch, begin); begin < end; ++i) {
    const LaunchRange& range = launch.ranges[i];
    const uint64_t range_end = min_u64(end, range.first + range.count);
    while (begin < range_end) {
      const uint64_t count = min_u64(range_end - begin, step - (begin + offset) % step);
      body(range, begin - range.first, begin, count);
      begin += count;
    }
  }
}

template <typename Body>
__device__ inline void each_run_of_block(const Launch& launch, uint64_t tile, uint64_t step, uint64_t offset,
                                         Body&& body) {
  const uint64_t first = launch.ranges[0].first;
  for (uint64_t at = blockIdx.x * tile; at < launch.total; at += gridDim.x * tile)
    each_run(launch, first + at, first + min_u64(at + tile, launch.total), step, offset, body);
}

// Returns x * power. A NaN keeps its sign and payload and becomes quiet, as on a CPU; a GPU's multiplication
// would return its own NaN.
__device__ inline float scale(float x, float power) {
  const uint32_t bits = sluice::bits_of(x);
  const float product = x * power;
  return (bits & 0x7fffffff) > 0x7f800000 ? sluice::float_of(bits | 0x00400000) : product;
}

__device__ inline bool is_finite(float x) {
  return (sluice::bits_of(x) & 0x7f800000) != 0x7f800000;
}

struct Bf16 {
  __device__ Bf16(const Launch&, uint64_t) {}
  __device__ uint16_t out(float x) const { return sluice::pipeline::to_bf16(x); }
  __device__ float in(uint16_t x) const { return sluice::pipeline::from_bf16(x); }
};

// The conversion of one scale block.
struct ScaledF16 {
  __device__ ScaledF16(const Launch& launch, uint64_t in_segment) {
    const uint64_t block = (launch.batch_first + in_segment) / kScaleBlock;
    const int32_t shift = sluice::pipeline::scale_shift(launch.exponents[block], launch.exponent_limit);
    power = sluice::power_of_two(shift);
    inverse = sluice::power_of_two(-shift);
  }
  __device__ uint16_t out(float x) const { return sluice::pipeline::to_f16(scale(x, power)); }
  __device__ float in(uint16_t x) const { return scale(sluice::pipeline::from_f16(x), inverse); }
  float power;
  float inverse;
};

// Distributes `count` elements over the threads of the block: calls one(index), or four(index of the first)
// where the alignment of `memory` and `wire` allows it. Wider writes over PCIe cost less.
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

__device__ inline void atomic_add(double* sum, double x) {
  auto* const word = reinterpret_cast<unsigned long long*>(sum);
  unsigned long long expected = 0, actual = atomicCAS(word, 0ULL, 0ULL);
  do {
    expected = actual;
    const double next = __builtin_bit_cast(double, expected) + x;
    actual = atomicCAS(word, expected, __builtin_bit_cast(unsigned long long, next));
  } while (actual != expected);
}

// Adds the errors of all threads of the block to `sum`; `mine` is that of the calling thread.
__device__ inline void add_errors(CastError* sum, const CastError& mine) {
  __shared__ double errors[kThreadsPerBlock];
  __shared__ double values[kThreadsPerBlock];
  errors[threadIdx.x] = mine.error_squares;
  values[threadIdx.x] = mine.value_squares;
  __syncthreads();
  if (threadIdx.x + 1 != blockDim.x) return;
  double error = 0, value = 0;
  for (uint32_t i = 0; i < blockDim.x; ++i) {
    error += errors[i];
    value += values[i];
  }
  atomic_add(&sum->error_squares, error);
  atomic_add(&sum->value_squares, value);
}

template <typename Form>
__device__ inline void gather_as(const Launch& launch) {
  CastError mine;
  const auto cast = [&mine, &launch](const Form& form, float x) {
    const uint16_t sent = form.out(x);
    const float restored = form.in(sent);
    if (launch.measure && is_finite(x) && is_finite(restored)) {
      const double value = x, error = static_cast<double>(restored) - value;
      mine.error_squares += error * error;
      mine.value_squares += value * value;
    }
    return sent;
  };
  each_run_of_block(launch, kTileElements, kScaleBlock, launch.batch_first,
                    [&](const LaunchRange& range, uint64_t at, uint64_t in_segment, uint64_t count) {
                      const Form form(launch, in_segment);
                      const uint8_t* const from = range.memory + at * sizeof(float);
                      uint8_t* const to = launch.staging + in_segment * sizeof(uint16_t);
                      by_fours(
                          from, to, count,
                          [&](uint64_t i) {
                            const float x = load_anywhere<float>(from + i * sizeof(float));
                            store_anywhere(to + i * sizeof(uint16_t), cast(form, x));
                          },
                          [&](uint64_t i) {
                            const auto values = load<FourFloats>(from + i * sizeof(float));
                            FourHalves sent;
                            for (int k = 0; k < 4; ++k) sent.x[k] = cast(form, values.x[k]);
                            store(to + i * sizeof(uint16_t), sent);
                          });
                    });
  if (launch.measure) add_errors(launch.error, mine);
}

template <typename Form>
__device__ inline void scatter_as(const Launch& launch) {
  each_run_of_block(launch, kTileElements, kScaleBlock, launch.batch_first,
                    [&](const LaunchRange& range, uint64_t at, uint64_t in_segment, uint64_t count) {
                      const Form form(launch, in_segment);
                      const uint8_t* const from = launch.staging + in_segment * sizeof(uint16_t);
                      uint8_t* const to = range.memory + at * sizeof(float);
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

// `from` and `to` must have the same distance from an address that is aligned to Word.
template <typename Word>
__device__ inline void copy_by(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  const uint64_t head = min_u64(bytes, (0 - reinterpret_cast<uintptr_t>(to)) % sizeof(Word));
  const uint64_t words = (bytes - head) / sizeof(Word);
  for (uint64_t i = threadIdx.x; i < head; i += blockDim.x) to[i] = from[i];
  for (uint64_t i = threadIdx.x; i < words; i += blockDim.x)
    store(to + head + i * sizeof(Word), load<Word>(from + head + i * sizeof(Word)));
  for (uint64_t i = head + words * sizeof(Word) + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

__device__ inline void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  const uintptr_t difference = reinterpret_cast<uintptr_t>(to) ^ reinterpret_cast<uintptr_t>(from);
  if (difference % sizeof(Quad) == 0) return copy_by<Quad>(to, from, bytes);
  if (difference % sizeof(uint32_t) == 0) return copy_by<uint32_t>(to, from, bytes);
  copy_by<uint8_t>(to, from, bytes);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreadsPerBlock)
    gather_cast(const Launch launch) {
  if (launch.wire == WireCast::kBf16)
    gather_as<Bf16>(launch);
  else
    gather_as<ScaledF16>(launch);
}

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreadsPerBlock)
    scatter_cast(const Launch launch) {
  if (launch.wire == WireCast::kBf16)
    scatter_as<Bf16>(launch);
  else
    scatter_as<ScaledF16>(launch);
}

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreadsPerBlock)
    gather_bytes(const Launch launch) {
  each_run_of_block(launch, kTileBytes, kTileBytes, 0,
                    [&](const LaunchRange& range, uint64_t at, uint64_t in_segment, uint64_t count) {
                      copy(launch.staging + in_segment, range.memory + at, count);
                    });
}

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreadsPerBlock)
    scatter_bytes(const Launch launch) {
  each_run_of_block(launch, kTileBytes, kTileBytes, 0,
                    [&](const LaunchRange& range, uint64_t at, uint64_t in_segment, uint64_t count) {
                      copy(range.memory + at, launch.staging + in_segment, count);
                    });
}

// One block of threads processes a whole scale block, because single bytes of host memory have no atomics.
// The first scale block may have begun in the previous launch; then the exponent found there is included.
extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreadsPerBlock)
    find_exponents(const Launch launch) {
  __shared__ uint8_t maxima[kThreadsPerBlock];
  const uint64_t first = launch.ranges[0].first;
  const uint64_t block = first / kScaleBlock + blockIdx.x;
  const uint64_t begin = block * kScaleBlock;
  const uint64_t end = min_u64(begin + kScaleBlock, first + launch.total);
  uint8_t largest = 0;
  each_run(launch, begin > first ? begin : first, end, kScaleBlock, 0,
           [&](const LaunchRange& range, uint64_t at, uint64_t, uint64_t count) {
             for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
               const float x = load_anywhere<float>(range.memory + (at + i) * sizeof(float));
               const uint8_t exponent = sluice::pipeline::exponent_of(x);
               largest = exponent > largest ? exponent : largest;
             }
           });
  maxima[threadIdx.x] = largest;
  __syncthreads();
  if (threadIdx.x + 1 != blockDim.x) return;
  if (begin < first && launch.found[block] > largest) largest = launch.found[block];
  for (uint32_t i = 0; i < blockDim.x; ++i) largest = maxima[i] > largest ? maxima[i] : largest;
  launch.found[block] = largest;
}

#include "gpu_client/cuda/block_kernels.cuh"
