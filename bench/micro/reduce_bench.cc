#include "bench/micro/reduce_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <span>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "config/json.h"
#include "core/arena.h"
#include "core/clock.h"
#include "reducer/kernels/fold.h"
#include "reducer/kernels/load_only.h"
#include "reducer/kernels/scalar_reference.h"
#include "wire/payload/block_codec.h"
#include "wire/sum_order.h"

namespace sluice::bench {
namespace {

constexpr size_t kMaxRanks = kernels::kGroup * kernels::kMaxSources;
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

// Class ReduceBuffers holds the sources, adjacent in one arena like the slots of a reducer, the partial sums
// of groups of eight if there are more sources, and the destination.
class ReduceBuffers {
 public:
  [[nodiscard]] static Result<ReduceBuffers> make(size_t sources, size_t bytes, wire::DType t) {
    const size_t stride = round_up(bytes, kPage);
    const size_t wide_stride = round_up(bytes / wire::size_of(t) * wire::accumulated_size_of(t), kPage);
    const size_t groups = sources <= kernels::kGroup ? 0 : div_ceil(sources, kernels::kGroup);
    Result<Arena> arena = Arena::map((sources + 2) * stride + groups * wide_stride);
    if (!arena) return tl::unexpected(arena.error());
    ReduceBuffers buffers;
    buffers.arena_ = std::move(*arena);
    buffers.bytes_ = bytes;
    std::byte* p = buffers.arena_.data();
    for (size_t k = 0; k < sources; ++k, p += stride) {
      buffers.writable_.push_back(p);
      buffers.pointers_.push_back(p);
    }
    for (size_t g = 0; g < groups; ++g, p += wide_stride) buffers.partials_.push_back(p);
    buffers.destination_ = p;
    buffers.expected_ = p + stride;
    buffers.fill(t);
    return buffers;
  }

  // Reduces the sources to `out` as a reducer does, by calls fold(stage, sources, out).
  template <class Fold>
  void reduce(const Fold& fold, std::byte* out) const {
    const std::span sources(pointers_);
    if (partials_.empty()) return fold(kernels::Stage::kWhole, sources, out);
    for (size_t g = 0; g < partials_.size(); ++g) {
      const size_t first = g * kernels::kGroup;
      fold(kernels::Stage::kPartial,
           sources.subspan(first, std::min(kernels::kGroup, sources.size() - first)), partials_[g]);
    }
    std::array<const std::byte*, kernels::kMaxSources> groups;
    std::ranges::copy(partials_, groups.begin());
    fold(kernels::Stage::kFinish, std::span<const std::byte* const>(groups).first(partials_.size()), out);
  }

  [[nodiscard]] std::span<const std::byte* const> sources() const { return pointers_; }
  [[nodiscard]] std::byte* destination() const { return destination_; }
  [[nodiscard]] std::byte* expected() const { return expected_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  // Fills the sources with random numbers of `t`. Floats are normal and of similar size, because special
  // values may change the speed.
  void fill(wire::DType t) {
    std::mt19937_64 random(42);
    if (wire::is_block(t)) return fill_blocks(t, random);
    const size_t size = wire::size_of(t);
    for (std::byte* source : writable_) {
      for (size_t i = 0; i + size <= bytes_; i += size) {
        const uint64_t pattern = with_moderate_exponent(t, random());
        std::memcpy(source + i, &pattern, size);
      }
    }
  }

  // Blocks of values with a standard normal distribution.
  void fill_blocks(wire::DType t, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    std::array<float, wire::kBlockValues> values;
    for (std::byte* source : writable_) {
      for (size_t i = 0; i + wire::kBlockBytes <= bytes_; i += wire::kBlockBytes) {
        for (float& value : values) value = normal(random);
        wire::encode_blocks(t, values.data(), values.size(), source + i);
      }
    }
  }

  Arena arena_;
  std::vector<std::byte*> writable_;
  std::vector<const std::byte*> pointers_;
  std::vector<std::byte*> partials_;  // none up to eight sources
  std::byte* destination_ = nullptr;
  std::byte* expected_ = nullptr;
  size_t bytes_ = 0;
};

struct ReduceRow {
  wire::DType type;
  wire::Op op;
  const char* target;
  wire::SumOrder order;
  double fold_gbps = 0;       // 10^9 bytes of all sources per second, median of the rounds
  double load_only_gbps = 0;  // 10^9 bytes loaded per second
  double memcpy_gbps = 0;     // 10^9 bytes copied per second, one source after another to the destination
  double ratio = 0;           // median of fold / load-only of the rounds
  double gvalues = 0;         // 10^9 values of all sources per second, from fold_gbps
  size_t rounds = 0;
  size_t wrong = 0;  // elements that differ from the scalar reference
};

// Class RowMeasurement measures one row: fold, load-only loop and memcpy in each round, then the check.
class RowMeasurement {
 public:
  RowMeasurement(const ReduceBuffers& buffers, wire::DType t, wire::Op op, const kernels::FoldTarget& target,
                 wire::SumOrder order)
      : buffers_(buffers), row_{.type = t, .op = op, .target = target.name, .order = order} {
    for (const auto stage : {kernels::Stage::kWhole, kernels::Stage::kPartial, kernels::Stage::kFinish})
      functions_[static_cast<size_t>(stage)] = target.find(t, op, stage, order);
    count_ = buffers.bytes() / wire::size_of(t);
    bytes_ = count_ * wire::size_of(t);
    fold_repeats_ = find_repeats([&] { fold(); });
    load_repeats_ = find_repeats([&] { load(); });
    copy_repeats_ = find_repeats([&] { copy(); });
  }

  void measure_round() {
    fold();  // brings the buffers into the cache, after the round of another type
    const auto total = static_cast<double>(bytes_ * buffers_.sources().size());
    // Bytes per nanosecond are GB/s.
    const auto rate = [&](size_t repeats, const auto& f) {
      return total * static_cast<double>(repeats) / static_cast<double>(time_of(repeats, f));
    };
    folds_.push_back(rate(fold_repeats_, [&] { fold(); }));
    loads_.push_back(rate(load_repeats_, [&] { load(); }));
    copies_.push_back(rate(copy_repeats_, [&] { copy(); }));
    ratios_.push_back(folds_.back() / loads_.back());
  }

  // Checks the result and returns the row.
  [[nodiscard]] ReduceRow finish() {
    const size_t size = wire::size_of(row_.type);
    const double values = wire::is_block(row_.type) ? wire::kBlockValues : 1;
    row_.rounds = folds_.size();
    row_.fold_gbps = median(std::move(folds_));
    row_.load_only_gbps = median(std::move(loads_));
    row_.memcpy_gbps = median(std::move(copies_));
    row_.ratio = median(std::move(ratios_));
    row_.gvalues = row_.fold_gbps / static_cast<double>(size) * values;

    std::memset(buffers_.destination(), 0xa5, bytes_);
    fold();
    buffers_.reduce(
        [this](kernels::Stage stage, std::span<const std::byte* const> sources, std::byte* out) {
          kernels::reference_fold(row_.type, row_.op, stage, row_.order, sources, count_, divisor(), out);
        },
        buffers_.expected());
    for (size_t i = 0; i < bytes_; i += size) {
      if (std::memcmp(buffers_.destination() + i, buffers_.expected() + i, size) != 0) ++row_.wrong;
    }
    return row_;
  }

 private:
  [[nodiscard]] uint32_t divisor() const { return static_cast<uint32_t>(buffers_.sources().size()); }
  void fold() const {
    buffers_.reduce(
        [this](kernels::Stage stage, std::span<const std::byte* const> sources, std::byte* out) {
          functions_[static_cast<size_t>(stage)](sources, count_, divisor(), out);
        },
        buffers_.destination());
  }
  void load() { sink_ = kernels::load_only(buffers_.sources(), bytes_); }
  void copy() const {
    for (const std::byte* source : buffers_.sources()) std::memcpy(buffers_.destination(), source, bytes_);
  }

  const ReduceBuffers& buffers_;
  ReduceRow row_;
  std::array<kernels::FoldFunction, 3> functions_{};  // by stage
  size_t count_ = 0, bytes_ = 0;
  size_t fold_repeats_ = 0, load_repeats_ = 0, copy_repeats_ = 0;
  volatile uint32_t sink_ = 0;
  std::vector<double> folds_, loads_, copies_, ratios_;
};

// Measures all rows of `types` in interleaved rounds, so that a disturbance affects all rows alike.
std::vector<ReduceRow> measure_types(const ReduceBenchOptions& options, const std::vector<wire::DType>& types,
                                     const std::vector<wire::Op>& ops,
                                     const std::vector<kernels::FoldTarget>& targets) {
  std::vector<ReduceBuffers> buffers;  // one of each type
  for (const wire::DType t : types) {
    buffers.push_back(value_or_fail(ReduceBuffers::make(options.sources, options.bytes, t), kExitFailure));
  }
  std::vector<RowMeasurement> measurements;
  for (size_t i = 0; i < types.size(); ++i) {
    for (const wire::Op op : ops) {
      if (!wire::is_supported(types[i], op)) continue;
      for (const kernels::FoldTarget& target : targets) {
        for (const wire::SumOrder order : options.orders)
          measurements.emplace_back(buffers[i], types[i], op, target, order);
      }
    }
  }
  const Nanos end = monotonic_now() + options.budget * static_cast<Nanos>(measurements.size());
  for (size_t round = 0; round < kMinRounds || monotonic_now() < end; ++round) {
    for (RowMeasurement& measurement : measurements) measurement.measure_round();
  }
  std::vector<ReduceRow> rows;
  for (RowMeasurement& measurement : measurements) rows.push_back(measurement.finish());
  return rows;
}

template <class E, size_t kCount>
std::vector<E> or_all(const std::vector<E>& chosen) {
  if (!chosen.empty()) return chosen;
  std::vector<E> all;
  for (size_t i = 0; i < kCount; ++i) all.push_back(static_cast<E>(i));
  return all;
}

std::vector<kernels::FoldTarget> choose_targets(const std::vector<std::string>& names) {
  const auto available = kernels::fold_targets();
  if (names.empty()) return {available.front()};
  std::vector<kernels::FoldTarget> chosen;
  for (const std::string& name : names) {
    if (name == "all") return {available.begin(), available.end()};
    const auto found =
        std::find_if(available.begin(), available.end(), [&](const auto& t) { return name == t.name; });
    if (found == available.end()) {
      std::string known;
      for (const auto& t : available) known.append(" ").append(t.name);
      throw Failure(kExitUsage, fmt::format("no target \"{}\" on this CPU; the targets are:{}", name, known));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

void print_header(const ReduceBenchOptions& options, const MachineFacts& machine) {
  fmt::print("{}", text_of(machine));
  fmt::print(
      "# {} sources of {} bytes, one thread. in: bytes of all sources per second; load: the same with "
      "loads\n",
      options.sources, options.bytes);
  fmt::print(
      "# only; ratio: in / load; Gval/s: 10^9 values of all sources per second. Medians over interleaved\n");
  fmt::print("# rounds of fold, load and memcpy, interleaved between the types too if types are listed.\n");
  fmt::print("# wrong: elements that differ from the scalar reference.\n#\n");
  fmt::print("# {:<11}{:<6}{:<9}{:<8}{:>10}{:>9}{:>12}{:>8}{:>14}{:>8}{:>8}\n", "type", "op", "target",
             "order", "in GB/s", "Gval/s", "load GB/s", "ratio", "memcpy GB/s", "rounds", "#wrong");
}

void print_row(const ReduceRow& row) {
  fmt::print("  {:<11}{:<6}{:<9}{:<8}{:>10.2f}{:>9.2f}{:>12.2f}{:>8.2f}{:>14.2f}{:>8}{:>8}\n",
             wire::to_string(row.type), wire::to_string(row.op), row.target, wire::to_string(row.order),
             row.fold_gbps, row.gvalues, row.load_only_gbps, row.ratio, row.memcpy_gbps, row.rounds,
             row.wrong);
  std::fflush(stdout);
}

nlohmann::ordered_json row_json(const ReduceRow& row) {
  return {{"type", std::string(wire::to_string(row.type))},
          {"op", std::string(wire::to_string(row.op))},
          {"target", row.target},
          {"order", std::string(wire::to_string(row.order))},
          {"in_gbps", row.fold_gbps},
          {"in_gvalues_per_s", row.gvalues},
          {"load_only_gbps", row.load_only_gbps},
          {"ratio", row.ratio},
          {"memcpy_gbps", row.memcpy_gbps},
          {"rounds", row.rounds},
          {"wrong", row.wrong}};
}

std::string row_csv(const ReduceRow& row) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", wire::to_string(row.type), wire::to_string(row.op),
                     row.target, wire::to_string(row.order), row.fold_gbps, row.gvalues, row.load_only_gbps,
                     row.ratio, row.memcpy_gbps, row.rounds, row.wrong);
}

void write_json(const ReduceBenchOptions& options, const MachineFacts& machine,
                const nlohmann::ordered_json& rows) {
  const nlohmann::ordered_json document = {{"schema", "sluice.bench.reduce/1"},
                                           {"machine", to_json(machine)},
                                           {"bytes_per_source", options.bytes},
                                           {"sources", options.sources},
                                           {"results", rows}};
  write_result_file(options.json_path, config::json_text(document, 2) + "\n");
}

}  // namespace

int run_reduce_bench(const ReduceBenchOptions& options) {
  if (options.sources < 1 || options.sources > kMaxRanks || options.bytes < wire::kBlockBytes) {
    throw Failure(kExitUsage, fmt::format("{} sources of {} B; expected 1 to {} sources of at least {} B",
                                          options.sources, options.bytes, kMaxRanks, wire::kBlockBytes));
  }
  const std::vector<kernels::FoldTarget> targets = choose_targets(options.targets);
  const MachineFacts machine = machine_facts("");
  print_header(options, machine);
  size_t wrong = 0;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string csv =
      "type,op,target,order,in_gbps,in_gvalues_per_s,load_only_gbps,ratio,memcpy_gbps,rounds,wrong\n";
  const auto ops = or_all<wire::Op, wire::kOpCount>(options.ops);
  const auto measure = [&](const std::vector<wire::DType>& types) {
    for (const ReduceRow& row : measure_types(options, types, ops, targets)) {
      print_row(row);
      rows.push_back(row_json(row));
      csv += row_csv(row);
      wrong += row.wrong;
    }
  };
  if (options.types.empty()) {  // one after another: the buffers of all types may exceed the memory
    for (const wire::DType t : or_all<wire::DType, wire::kDTypeCount>({})) measure({t});
  } else {
    measure(options.types);
  }
  fmt::print("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  if (!options.json_path.empty()) write_json(options, machine, rows);
  if (!options.csv_path.empty()) write_result_file(options.csv_path, csv);
  return wrong == 0 ? kExitOk : kExitCheckFailed;
}

}  // namespace sluice::bench
