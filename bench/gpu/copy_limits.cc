#include "bench/gpu/copy_limits.h"

#include <vector>

#include "bench/e2e/report/quantiles.h"
#include "core/clock.h"
#include "gpu_client/pipeline/cast.h"

namespace sluice::bench {
namespace {

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

}  // namespace

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

}  // namespace sluice::bench
