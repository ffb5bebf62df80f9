#include "bench/micro/reduce_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "core/arena.h"
#include "core/clock.h"
#include "reducer/kernels/fold.h"
#include "reducer/kernels/load_only.h"
#include "reducer/kernels/scalar_reference.h"

namespace sluice::bench {
namespace {

constexpr size_t kMaxSources = 256;  // limit of FoldFunction
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

// Class ReduceBuffers holds the sources, adjacent in one arena like the slots of a reducer, and the
// destination.
class ReduceBuffers {
 public:
  [[nodiscard]] static Result<ReduceBuffers> make(size_t sources, size_t bytes) {
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

  // Fills the sources with random numbers of `t`. Floats are normal and of similar size, because special
  // values may change the speed.
  void fill(wire::DType t) {
    std::mt19937_64 random(42);
    const size_t size = wire::size_of(t);
    for (std::byte* source : writable_) {
      for (size_t i = 0; i + size <= bytes_; i += size) {
        const uint64_t pattern = with_moderate_exponent(t, random());
        std::memcpy(source + i, &pattern, size);
      }
    }
  }

  [[nodiscard]] std::span<const std::byte* const> sources() const { return pointers_; }
  [[nodiscard]] std::byte* destination() const { return destination_; }
  [[nodiscard]] std::byte* expected() const { return expected_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  Arena arena_;
  std::vector<std::byte*> writable_;
  std::vector<const std::byte*> pointers_;
  std::byte* destination_ = nullptr;
  std::byte* expected_ = nullptr;
  size_t bytes_ = 0;
};

struct ReduceRow {
  wire::DType type;
  wire::Op op;
  const char* target;
  double fold_gbps = 0;       // 10^9 bytes of all sources per second, median of the rounds
  double load_only_gbps = 0;  // 10^9 bytes loaded per second
  double memcpy_gbps = 0;     // 10^9 bytes copied per second, one source after another to the destination
  double ratio = 0;           // median of fold / load-only of the rounds
  size_t rounds = 0;
  size_t wrong = 0;  // elements that differ from the scalar reference
};

// Measures one row: fold, load-only loop and memcpy in interleaved rounds, then the check.
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
  fmt::print("# only; ratio: in / load. Medians over interleaved rounds of fold, load and memcpy.\n");
  fmt::print("# wrong: elements that differ from the scalar reference.\n#\n");
  fmt::print("# {:<8}{:<6}{:<9}{:>10}{:>12}{:>8}{:>14}{:>8}{:>8}\n", "type", "op", "target", "in GB/s",
             "load GB/s", "ratio", "memcpy GB/s", "rounds", "#wrong");
}

void print_row(const ReduceRow& row) {
  fmt::print("  {:<8}{:<6}{:<9}{:>10.2f}{:>12.2f}{:>8.2f}{:>14.2f}{:>8}{:>8}\n", wire::to_string(row.type),
             wire::to_string(row.op), row.target, row.fold_gbps, row.load_only_gbps, row.ratio,
             row.memcpy_gbps, row.rounds, row.wrong);
  std::fflush(stdout);
}

nlohmann::ordered_json row_json(const ReduceRow& row) {
  return {{"type", std::string(wire::to_string(row.type))},
          {"op", std::string(wire::to_string(row.op))},
          {"target", row.target},
          {"in_gbps", row.fold_gbps},
          {"load_only_gbps", row.load_only_gbps},
          {"ratio", row.ratio},
          {"memcpy_gbps", row.memcpy_gbps},
          {"rounds", row.rounds},
          {"wrong", row.wrong}};
}

std::string row_csv(const ReduceRow& row) {
  return fmt::format("{},{},{},{},{},{},{},{},{}\n", wire::to_string(row.type), wire::to_string(row.op),
                     row.target, row.fold_gbps, row.load_only_gbps, row.ratio, row.memcpy_gbps, row.rounds,
                     row.wrong);
}

void write_json(const ReduceBenchOptions& options, const MachineFacts& machine,
                const nlohmann::ordered_json& rows) {
  const nlohmann::ordered_json document = {{"schema", "sluice.bench.reduce/1"},
                                           {"machine", to_json(machine)},
                                           {"bytes_per_source", options.bytes},
                                           {"sources", options.sources},
                                           {"results", rows}};
  write_result_file(options.json_path, document.dump(2) + "\n");
}

}  // namespace

int run_reduce_bench(const ReduceBenchOptions& options) {
  if (options.sources < 1 || options.sources > kMaxSources || options.bytes < sizeof(uint64_t)) {
    throw Failure(kExitUsage, fmt::format("{} sources of {} B; expected 1 to {} sources of at least {} B",
                                          options.sources, options.bytes, kMaxSources, sizeof(uint64_t)));
  }
  const std::vector<kernels::FoldTarget> targets = choose_targets(options.targets);
  ReduceBuffers buffers = value_or_fail(ReduceBuffers::make(options.sources, options.bytes), kExitFailure);
  const MachineFacts machine = machine_facts("");
  print_header(options, machine);
  size_t wrong = 0;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string csv = "type,op,target,in_gbps,load_only_gbps,ratio,memcpy_gbps,rounds,wrong\n";
  for (const wire::DType t : or_all<wire::DType, wire::kDTypeCount>(options.types)) {
    buffers.fill(t);
    for (const wire::Op op : or_all<wire::Op, wire::kOpCount>(options.ops)) {
      for (const kernels::FoldTarget& target : targets) {
        const ReduceRow row = measure_reduce(buffers, t, op, target, options.budget);
        print_row(row);
        rows.push_back(row_json(row));
        csv += row_csv(row);
        wrong += row.wrong;
      }
    }
  }
  fmt::print("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  if (!options.json_path.empty()) write_json(options, machine, rows);
  if (!options.csv_path.empty()) write_result_file(options.csv_path, csv);
  return wrong == 0 ? kExitOk : kExitCheckFailed;
}

}  // namespace sluice::bench
