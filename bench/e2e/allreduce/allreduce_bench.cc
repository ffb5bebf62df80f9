#include "bench/e2e/allreduce/allreduce_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "bench/e2e/allreduce/allreduce_report.h"
#include "bench/e2e/pool/pool_status.h"
#include "bench/e2e/process/cpu_time.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/workload/wire_pattern.h"
#include "bench/e2e/workload/wire_type.h"
#include "config/pool.h"
#include "core/arena.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr size_t kBufferAlignment = 4096;  // Arena maps whole pages

// Class AllreduceRun measures all sizes on one rank.
class AllreduceRun {
 public:
  AllreduceRun(const AllreduceOptions& options, const WorkerOptions& worker)
      : options_(options),
        sizes_(sizes_of(options)),
        session_(worker),
        reducer_cpu_(value_or_fail(config::read_reducers(worker.reducers), kExitUsage),
                     identity_of_process()) {
    if (options.wire != pipeline::WireCast::kNone) {
      sluice_stream_options streams;
      sluice_stream_options_init(&streams);
      streams.wire_dtype = wire_dtype_of(options.wire);
      streams.wire_strict = 1;  // a fallback would be measured under the wrong name
      session_.open_streams(streams);
    }
    if (options.plugin.use) plugin_ = std::make_unique<PluginAllreduce>(options.plugin, worker, session_);
    const size_t slack = static_cast<size_t>(options.unalign) * sizeof(double) + kBufferAlignment;
    send_ = value_or_fail(Arena::map(options.max_bytes + slack), kExitFailure);
    for (int i = 0; i < options.aggregated; ++i)
      recv_.push_back(value_or_fail(Arena::map(options.max_bytes + slack), kExitFailure));
    session_.register_memory(send_.data(), send_.size());
    for (const Arena& arena : recv_) session_.register_memory(arena.data(), arena.size());
  }

  int run(const WorkerOptions& worker) {
    AllreduceReport report(options_, worker, gather_ranks(session_));
    for (wire::DType dtype : options_.dtypes) {
      for (wire::Op op : options_.ops) {
        warm_up(dtype, op);
        for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
          for (uint64_t bytes : sizes_) report.add(measure(bytes / wire::size_of(dtype), dtype, op));
        }
      }
    }
    const int code = report.finish();
    plugin_.reset();
    session_.close();
    return code;
  }

 private:
  // Resources that the timed loops of one row used on this rank.
  struct Cost {
    double cpu_seconds = 0;
    uint64_t wire_out = 0;
    uint64_t wire_in = 0;
  };

  // Buffers of one operation.
  struct OperationBuffers {
    std::byte* send;
    std::byte* recv;
  };

  void allreduce(const std::byte* send, std::byte* recv, size_t count, wire::DType dtype, wire::Op op) {
    if (plugin_) {
      plugin_->allreduce(send, recv, count, dtype, op);
    } else {
      session_.allreduce(send, recv, count, dtype, op);
    }
  }

  std::byte* buffer(const Arena& arena, wire::DType dtype) const {
    return arena.data() + static_cast<size_t>(options_.unalign) * wire::size_of(dtype);
  }

  WirePattern pattern(wire::DType dtype, wire::Op op) {
    return {dtype, op, cast_of(options_.wire, dtype, op), session_.ranks(), seed_++, options_.zeros};
  }

  // Warms up like nccl-tests: sizes by factors of 2, out of place, before the first row of a type and
  // operator. With the data of a measurement: zeros would not travel.
  void warm_up(wire::DType dtype, wire::Op op) {
    if (options_.warmup > 0)
      pattern(dtype, op).fill(session_.rank(), options_.max_bytes / wire::size_of(dtype),
                              buffer(send_, dtype));
    for (uint64_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= 2) {
      for (int i = 0; i < options_.warmup; ++i) {
        allreduce(buffer(send_, dtype), buffer(recv_.front(), dtype), bytes / wire::size_of(dtype), dtype,
                  op);
      }
    }
  }

  Row measure(size_t count, wire::DType dtype, wire::Op op) {
    Row row{.bytes = count * wire::size_of(dtype), .count = count, .dtype = dtype, .op = op};
    // If the pool does not answer, the report has no reducer column, and the run continues.
    if (session_.rank() == 0 && options_.extras) reducer_cpu_.start();
    Cost cost;
    row.out_of_place = time_side(count, dtype, op, false, cost);
    row.in_place = time_side(count, dtype, op, true, cost);
    const double operations = 2.0 * options_.iterations * options_.aggregated;
    row.wire_out = static_cast<uint64_t>(std::llround(static_cast<double>(cost.wire_out) / operations));
    row.wire_in = static_cast<uint64_t>(std::llround(static_cast<double>(cost.wire_in) / operations));
    const double cpu = session_.reduce(cost.cpu_seconds, wire::Op::kSum);
    const double contributed = operations * static_cast<double>(row.bytes) * session_.ranks();
    row.worker_cpu_per_gb = contributed > 0 ? cpu / (contributed * 1e-9) : 0;
    row.reducer_cpu_per_gb = reducer_cpu_.seconds_per_gb();
    return row;
  }

  Measurement time_side(size_t count, wire::DType dtype, wire::Op op, bool in_place, Cost& cost) {
    // Concurrent operations may share the send buffer, but not the receive buffer.
    std::vector<OperationBuffers> buffers;
    for (const Arena& arena : recv_) {
      std::byte* const recv = buffer(arena, dtype);
      buffers.push_back({.send = in_place ? recv : buffer(send_, dtype), .recv = recv});
    }
    const auto [send, recv] = buffers.front();
    const WirePattern timed = pattern(dtype, op);
    for (const OperationBuffers& b : buffers) {
      if (in_place || &b == &buffers.front()) timed.fill(session_.rank(), count, b.send);
    }
    for (const OperationBuffers& b : buffers) allreduce(b.send, b.recv, count, dtype, op);
    session_.barrier();

    const sluice_stats stats_before = session_.stats();
    const double cpu_before = own_cpu_seconds();
    Measurement m;
    m.began = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const Nanos elapsed = timed_loop(buffers, count, dtype, op);
    cost.cpu_seconds += own_cpu_seconds() - cpu_before;
    const sluice_stats stats_after = session_.stats();
    cost.wire_out += stats_after.wire_bytes_out - stats_before.wire_bytes_out;
    cost.wire_in += stats_after.wire_bytes_in - stats_before.wire_bytes_in;

    m.seconds = over_ranks(1e-9 * static_cast<double>(elapsed) / (options_.iterations * options_.aggregated));
    m.alg_bw = static_cast<double>(count * wire::size_of(dtype)) * 1e-9 / m.seconds;
    m.bus_bw = m.alg_bw * 2.0 * (session_.ranks() - 1) / session_.ranks();
    m.iterations = quantiles_of(samples_);
    m.iterations_of_slowest.resize(samples_.size());
    session_.allreduce(samples_.data(), m.iterations_of_slowest.data(), samples_.size(), wire::DType::kF64,
                       wire::Op::kMax);
    m.checked = options_.check > 0;
    session_.barrier();
    // Out of place, all timed operations write the same result, so the last results are checked. In place,
    // each operation reduces the result of the operation before.
    if (m.checked && !in_place) {
      uint64_t wrong = 0;
      for (const OperationBuffers& b : buffers) wrong += timed.count_wrong(b.recv, count);
      m.wrong += session_.reduce(wrong, wire::Op::kSum);
    }
    for (int i = 0; i < options_.check && m.wrong == 0; ++i) {
      const WirePattern fresh = pattern(dtype, op);
      if (!in_place) std::fill_n(recv, count * wire::size_of(dtype), std::byte{0});
      fresh.fill(session_.rank(), count, send);
      allreduce(send, recv, count, dtype, op);
      m.wrong += session_.reduce(fresh.count_wrong(recv, count), wire::Op::kSum);
    }
    return m;
  }

  // Runs the timed iterations and stores their times in samples_. Returns the sum.
  Nanos timed_loop(const std::vector<OperationBuffers>& buffers, size_t count, wire::DType dtype,
                   wire::Op op) {
    std::vector<sluice_request> open;
    open.reserve(buffers.size());
    samples_.clear();
    samples_.reserve(static_cast<size_t>(options_.iterations));  // no allocations in the timed loop
    Nanos elapsed = 0;
    for (int i = 0; i < options_.iterations; ++i) {
      const Nanos begin = monotonic_now();
      if (buffers.size() == 1) {
        allreduce(buffers[0].send, buffers[0].recv, count, dtype, op);
      } else {
        open.clear();
        for (const OperationBuffers& b : buffers)
          open.push_back(session_.start(b.send, b.recv, count, dtype, op));
        for (const sluice_request request : open) session_.wait(request);
      }
      if (options_.blocking == 1) session_.barrier();
      const Nanos time = monotonic_now() - begin;
      elapsed += time;
      samples_.push_back(1e-9 * static_cast<double>(time) / options_.aggregated);
      if (options_.blocking == 3) session_.barrier();
    }
    return elapsed;
  }

  // Combines the times of all ranks into the time of the table.
  double over_ranks(double seconds) {
    switch (options_.average) {
      case 0: return session_.reduce(session_.rank() == 0 ? seconds : 0.0, wire::Op::kSum);
      case 2: return session_.reduce(seconds, wire::Op::kMin);
      case 3: return session_.reduce(seconds, wire::Op::kMax);
      default: return session_.reduce(seconds, wire::Op::kAvg);
    }
  }

  const AllreduceOptions& options_;
  std::vector<uint64_t> sizes_;
  WorkerSession session_;
  std::unique_ptr<PluginAllreduce> plugin_;
  PoolCpuMeter reducer_cpu_;
  Arena send_;
  std::vector<Arena> recv_;      // one per concurrent operation
  std::vector<double> samples_;  // seconds per operation, of the iterations of one measurement on this rank
  uint64_t seed_ = 1;
};

}  // namespace

int run_allreduce(const AllreduceOptions& options, const WorkerOptions& worker) {
  return AllreduceRun(options, worker).run(worker);
}

}  // namespace sluice::bench
