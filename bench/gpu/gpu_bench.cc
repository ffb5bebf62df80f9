#include "bench/gpu/gpu_bench.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "bench/e2e/process/cpu_time.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/quantiles.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/e2e/workload/size_sweep.h"
#include "bench/e2e/workload/wire_pattern.h"
#include "bench/e2e/workload/wire_type.h"
#include "bench/gpu/gpu_report.h"
#include "core/clock.h"
#include "gpu_client/api/options.h"

namespace sluice::bench {
namespace {

sluice_stream_options stream_options_of(const PieceOptions& pieces) {
  sluice_stream_options options;
  sluice_stream_options_init(&options);
  options.staging_bytes = pieces.staging_bytes;
  options.piece_bytes = static_cast<uint32_t>(std::min<uint64_t>(pieces.piece_bytes, UINT32_MAX));
  options.wire_dtype = wire_dtype_of(pieces.wire);
  return options;
}

// Returns the options of a second session of the same ranks, because a session with streams accepts only
// operations on streams.
WorkerOptions second_session(WorkerOptions worker) {
  char& digit = worker.session.back();
  digit = digit == '0' ? '1' : '0';
  return worker;
}

constexpr int kCopies = 7;

// Returns GB/s of this rank; 0 when the rank only waits for the ranks that copy.
template <typename Copy>
double rate(WorkerSession& session, bool is_active, Copy&& copy) {
  std::vector<double> seconds;
  for (int i = 0; i < kCopies; ++i) {
    session.barrier();
    if (!is_active) continue;
    const Nanos begin = monotonic_now();
    copy();
    seconds.push_back(1e-9 * static_cast<double>(monotonic_now() - begin));
  }
  session.barrier();
  return is_active ? 1e-9 * static_cast<double>(kLimitBytes) / median_of(std::move(seconds)) : 0;
}

// Collective. `pinned`, `from` and `to` have kLimitBytes each. Copies read from `from` and write to `to`.
CopyLimits measure_copy_limits(BenchDevice& device, WorkerSession& session, std::byte* pinned,
                               const std::byte* from, std::byte* to) {
  const auto out = [&] { device.read(from, pinned, kLimitBytes); };
  const auto in = [&] { device.write(pinned, to, kLimitBytes); };
  // Each direction uses one half of the pinned memory.
  const auto both = [&] {
    const pipeline::BufferRange half{.send = from, .recv = to, .count = kLimitBytes / 2};
    const pipeline::Cast bytes{.element_bytes = 1};
    pipeline::Device& d = device.device();
    for (int i = 0; i < 2; ++i) {
      device.check(d.gather(d.copy_out_stream(), {&half, 1}, pinned, bytes));
      device.check(d.scatter(d.copy_in_stream(), pinned + kLimitBytes / 2, {&half, 1}, bytes));
    }
    device.drain(d.copy_out_stream());
    device.drain(d.copy_in_stream());
  };
  const bool first = session.rank() == 0;
  out();  // touches the pages and raises the clock rates
  in();
  CopyLimits limits;
  limits.out_alone = session.reduce(rate(session, first, out), wire::Op::kSum);
  limits.in_alone = session.reduce(rate(session, first, in), wire::Op::kSum);
  limits.out_concurrent = session.reduce(rate(session, true, out), wire::Op::kAvg);
  limits.in_concurrent = session.reduce(rate(session, true, in), wire::Op::kAvg);
  limits.both_concurrent = session.reduce(rate(session, true, both), wire::Op::kAvg);
  return limits;
}

// Class GpuBenchRun measures all rows on one rank.
class GpuBenchRun {
 public:
  GpuBenchRun(const GpuBenchOptions& options, const WorkerOptions& worker)
      : options_(options),
        sizes_(sizes_of(options)),
        device_(BenchDevice::open(options.device, worker.rank)),
        session_(worker),
        on_streams_(second_session(worker)) {
    sluice_stream_options streams = stream_options_of(options.pieces);
    streams.device_kind = device_.kind();
    streams.device = device_.ordinal();
    streams.always_staged = device_.kind() == SLUICE_DEVICE_HOST ? 1 : 0;
    on_streams_.open_streams(streams);
    stages_ = std::make_unique<Stages>(device_, session_, options.pieces);
    const uint64_t bytes = std::max(options.max_bytes, kLimitBytes);
    send_ = device_.allocate(bytes);
    recv_ = device_.allocate(bytes);
    pinned_ = device_.pin(bytes);
  }

  int run(const WorkerOptions& worker) {
    const CopyLimits limits =
        measure_copy_limits(device_, session_, pinned_->bytes().data(), send_.get(), recv_.get());
    GpuReport report(options_, worker, device_, gather_ranks(session_), gather_devices(session_, device_),
                     limits);
    for (const wire::DType dtype : options_.dtypes) {
      for (const wire::Op op : options_.ops) {
        for (const uint64_t bytes : sizes_) {
          if (const uint64_t count = bytes / wire::size_of(dtype); count > 0)
            report.add(measure(count, dtype, op));
        }
      }
    }
    const int code = report.finish();
    on_streams_.close();
    session_.close();
    return code;
  }

 private:
  // One of the interleaved measurements, on this rank.
  struct TimedTask {
    std::function<void()> work = {};
    std::vector<double> seconds = {};  // per iteration
    double cpu_seconds = 0;            // of all iterations
  };

  GpuRow measure(uint64_t count, wire::DType dtype, wire::Op op) {
    const uint64_t bytes = count * wire::size_of(dtype);
    GpuRow row;
    row.table = {.bytes = bytes, .count = count, .dtype = dtype, .op = op};
    // The network stage sends the data of the pipeline, because the time of a reduction depends on the data.
    fill(pattern(dtype, op), count, send_.get());
    fill(pattern(dtype, op), count, recv_.get());
    stages_->prepare(send_.get(), recv_.get(), count, dtype, op);
    row.pieces = stages_->pieces();
    const uint64_t pieces_before = on_streams_.stream_stats().pieces;
    operations_ = 0;

    std::array<TimedTask, kTimedTasks.size()> tasks{
        TimedTask{.work = [this] { stages_->copy_out(); }}, TimedTask{.work = [this] { stages_->network(); }},
        TimedTask{.work = [this] { stages_->copy_in(); }},
        TimedTask{.work = [&] { allreduce(send_.get(), count, dtype, op); }},
        TimedTask{.work = [&] { allreduce(recv_.get(), count, dtype, op); }}};
    for (int i = 0; i < options_.warmup; ++i) {
      for (TimedTask& task : tasks) task.work();
    }
    for (int i = 0; i < options_.iterations; ++i) {
      for (TimedTask& task : tasks) {
        session_.barrier();
        const double cpu_before = own_cpu_seconds();
        const Nanos begin = monotonic_now();
        task.work();
        task.seconds.push_back(1e-9 * static_cast<double>(monotonic_now() - begin));
        task.cpu_seconds += own_cpu_seconds() - cpu_before;
      }
    }
    row.copy_out = over_ranks(bytes, tasks[0]);
    row.network = over_ranks(bytes, tasks[1]);
    row.copy_in = over_ranks(bytes, tasks[2]);
    row.table.out_of_place = over_ranks(bytes, tasks[3]);
    row.table.in_place = over_ranks(bytes, tasks[4]);
    for (size_t i = 0; i < tasks.size(); ++i)
      row.cpu[i] = session_.reduce(tasks[i].cpu_seconds / options_.iterations, wire::Op::kAvg);
    check_results(row.table.out_of_place, send_.get(), count, dtype, op);
    check_results(row.table.in_place, recv_.get(), count, dtype, op);
    row.operations = operations_;
    row.pieces_sent = on_streams_.stream_stats().pieces - pieces_before;
    return row;
  }

  // Returns when `recv_` holds the result.
  void allreduce(const std::byte* send, uint64_t count, wire::DType dtype, wire::Op op) {
    on_streams_.wait(on_streams_.start_on_stream(send, recv_.get(), count, dtype, op, nullptr));
    ++operations_;
  }

  WirePattern pattern(wire::DType dtype, wire::Op op) {
    return {dtype, op, cast_of(options_.pieces.wire, dtype, op), session_.ranks(), seed_++};
  }

  void fill(const WirePattern& pattern, uint64_t count, std::byte* at) {
    pattern.fill(session_.rank(), count, pinned_->bytes().data());
    device_.write(pinned_->bytes().data(), at, pattern.bytes_of(count));
  }

  void check_results(Measurement& m, std::byte* send, uint64_t count, wire::DType dtype, wire::Op op) {
    m.checked = options_.check > 0;
    std::byte* const pinned = pinned_->bytes().data();
    const uint64_t bytes = count * wire::size_of(dtype);
    for (int i = 0; i < options_.check && m.wrong == 0; ++i) {
      const WirePattern fresh = pattern(dtype, op);
      if (send != recv_.get()) {
        std::fill_n(pinned, bytes, std::byte{0});
        device_.write(pinned, recv_.get(), bytes);
      }
      fill(fresh, count, send);
      allreduce(send, count, dtype, op);
      device_.read(recv_.get(), pinned, bytes);
      m.wrong += session_.reduce(fresh.count_wrong(pinned, count), wire::Op::kSum);
    }
  }

  // Returns means over iterations and ranks, like nccl-tests.
  Measurement over_ranks(uint64_t bytes, const TimedTask& task) {
    double sum = 0;
    for (const double seconds : task.seconds) sum += seconds;
    Measurement m;
    m.seconds = session_.reduce(sum / static_cast<double>(task.seconds.size()), wire::Op::kAvg);
    m.alg_bw = 1e-9 * static_cast<double>(bytes) / m.seconds;
    m.bus_bw = m.alg_bw * 2.0 * (session_.ranks() - 1) / session_.ranks();
    m.iterations = quantiles_of(task.seconds);
    return m;
  }

  const GpuBenchOptions& options_;
  std::vector<uint64_t> sizes_;
  BenchDevice device_;
  WorkerSession session_;     // for the network stage, and for the exchange between the ranks
  WorkerSession on_streams_;  // for the operations end to end
  std::unique_ptr<Stages> stages_;
  std::shared_ptr<std::byte> send_, recv_;
  std::unique_ptr<pipeline::PinnedMemory>
      pinned_;  // for copies to and from the device outside the timed code
  uint64_t operations_ = 0;
  uint64_t seed_ = 1;
};

}  // namespace

const Measurement& GpuRow::slowest() const noexcept {
  const Measurement& copy = copy_out.seconds >= copy_in.seconds ? copy_out : copy_in;
  return network.seconds >= copy.seconds ? network : copy;
}

const char* GpuRow::slowest_name() const noexcept {
  const Measurement* const stage = &slowest();
  return stage == &network ? "network" : stage == &copy_out ? "D2H" : "H2D";
}

double GpuRow::ratio() const noexcept {
  return table.out_of_place.seconds / slowest().seconds;
}

void check(const GpuBenchOptions& options) {
  (void)sizes_of(options);
  if (options.iterations < 1) throw Failure(kExitUsage, "iters is below 1; expected a positive number");
  if (options.warmup < 0) throw Failure(kExitUsage, "warmup_iters is negative");
  if (options.check < 0) throw Failure(kExitUsage, "check is negative");
  if (options.max_ratio < 0) throw Failure(kExitUsage, "max-ratio is negative");
  (void)value_or_fail(api::read_stream_options(stream_options_of(options.pieces)), kExitUsage);
}

int run_gpu_bench(const GpuBenchOptions& options, const WorkerOptions& worker) {
  return GpuBenchRun(options, worker).run(worker);
}

}  // namespace sluice::bench
