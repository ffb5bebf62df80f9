#include "bench/micro/reduce_measure.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <random>
#include <utility>

#include "core/clock.h"
#include "reducer/kernels/load_only.h"
#include "reducer/kernels/scalar_reference.h"

namespace sluice::bench {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMinRounds = 5;
constexpr Nanos kMeasureTime = kMillisecond;  // well above the clock resolution, below most disturbances

// Returns the CPU time of this thread. The wall clock would be biased: time slices of the scheduler can
// synchronize with the rounds, and then every preemption hits the same measurement.
Nanos thread_cpu_now() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<Nanos>(ts.tv_sec) * kSecond + ts.tv_nsec;
}

template <class F>
Nanos time_of(size_t repeats, const F& f) {
  const Nanos begin = thread_cpu_now();
  for (size_t i = 0; i < repeats; ++i) f();
  return std::max<Nanos>(thread_cpu_now() - begin, 1);
}

template <class F>
size_t find_repeats(const F& f) {
  f();  // touches all memory once
  size_t repeats = 1;
  // The minimum of two runs, so that an interruption does not count as run time.
  while (std::min(time_of(repeats, f), time_of(repeats, f)) < kMeasureTime) repeats *= 2;
  return repeats;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns a float in +-[1, 2): the exponent of 1, and a random fraction and sign.
uint64_t with_moderate_exponent(wire::DType t, uint64_t bits) {
  switch (t) {
    case wire::DType::kF16: return (bits & 0x83ff) | 0x3c00;
    case wire::DType::kBf16: return (bits & 0x807f) | 0x3f80;
    case wire::DType::kF8e4m3: return (bits & 0x87) | 0x38;
    case wire::DType::kF8e5m2: return (bits & 0x83) | 0x3c;
    case wire::DType::kF32: return (bits & 0x807fffff) | 0x3f800000;
    case wire::DType::kF64: return (bits & 0x800fffffffffffff) | 0x3ff0000000000000;
    default: return bits;
  }
}

}  // namespace

Result<ReduceBuffers> ReduceBuffers::make(size_t sources, size_t bytes) {
  const size_t stride = round_up(bytes, kPage);
  Result<Arena> arena = Arena::map((sources + 2) * stride);
  if (!arena) return tl::unexpected(arena.error());
  ReduceBuffers buffers;
  buffers.arena_ = std::move(*arena);
  buffers.bytes_ = bytes;
  std::byte* p = buffers.arena_.data();
  for (size_t k = 0; k < sources; ++k, p += stride) {
    buffers.writable_.push_back(p);
    buffers.pointers_.push_back(p);
  }
  buffers.destination_ = p;
  buffers.expected_ = p + stride;
  return buffers;
}

void ReduceBuffers::fill(wire::DType t) {
  std::mt19937_64 random(42);
  const size_t size = wire::size_of(t);
  for (std::byte* source : writable_) {
    for (size_t i = 0; i + size <= bytes_; i += size) {
      const uint64_t pattern = with_moderate_exponent(t, random());
      std::memcpy(source + i, &pattern, size);
    }
  }
}

ReduceRow measure_reduce(const ReduceBuffers& buffers, wire::DType t, wire::Op op,
                         const kernels::FoldTarget& target, Nanos budget) {
  ReduceRow row{.type = t, .op = op, .target = target.name};
  const auto sources = buffers.sources();
  const auto divisor = static_cast<uint32_t>(sources.size());
  const size_t size = wire::size_of(t);
  const size_t count = buffers.bytes() / size;
  const size_t bytes = count * size;
  const kernels::FoldFunction function = target.find(t, op, kernels::Stage::kWhole);
  volatile uint32_t sink = 0;

  const auto fold = [&] { function(sources, count, divisor, buffers.destination()); };
  const auto load = [&] { sink = kernels::load_only(sources, bytes); };
  const auto copy = [&] {
    for (const std::byte* source : sources) std::memcpy(buffers.destination(), source, bytes);
  };
  const size_t fold_repeats = find_repeats(fold);
  const size_t load_repeats = find_repeats(load);
  const size_t copy_repeats = find_repeats(copy);
  const auto total = static_cast<double>(bytes * sources.size());
  std::vector<double> folds;
  std::vector<double> loads;
  std::vector<double> copies;
  std::vector<double> ratios;
  const Nanos end = monotonic_now() + budget;
  while (monotonic_now() < end || folds.size() < kMinRounds) {
    // Bytes per nanosecond are GB/s.
    folds.push_back(total * static_cast<double>(fold_repeats) /
                    static_cast<double>(time_of(fold_repeats, fold)));
    loads.push_back(total * static_cast<double>(load_repeats) /
                    static_cast<double>(time_of(load_repeats, load)));
    copies.push_back(total * static_cast<double>(copy_repeats) /
                     static_cast<double>(time_of(copy_repeats, copy)));
    ratios.push_back(folds.back() / loads.back());
  }
  row.rounds = folds.size();
  row.fold_gbps = median(std::move(folds));
  row.load_only_gbps = median(std::move(loads));
  row.memcpy_gbps = median(std::move(copies));
  row.ratio = median(std::move(ratios));

  std::memset(buffers.destination(), 0xa5, bytes);
  fold();
  kernels::reference_fold(t, op, kernels::Stage::kWhole, sources, count, divisor, buffers.expected());
  for (size_t i = 0; i < bytes; i += size) {
    if (std::memcmp(buffers.destination() + i, buffers.expected() + i, size) != 0) ++row.wrong;
  }
  return row;
}

}  // namespace sluice::bench
