#include "bench/e2e/link/link_bench.h"

#include <algorithm>
#include <vector>

#include "bench/e2e/link/link_report.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/quantiles.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/e2e/workload/pattern.h"
#include "config/pool.h"
#include "core/arena.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr wire::DType kLinkType = wire::DType::kF32;
constexpr wire::Op kLinkOp = wire::Op::kSum;

// Class LinkRun measures all pairs on one rank.
class LinkRun {
 public:
  LinkRun(const LinkOptions& options, const WorkerOptions& worker)
      : options_(options),
        worker_(worker),
        reducers_(reducers_of(worker)),
        session_(worker),
        send_(value_or_fail(Arena::map(options.bytes), kExitFailure)),
        recv_(value_or_fail(Arena::map(options.bytes), kExitFailure)) {
    for (const Arena* arena : {&send_, &recv_}) session_.register_memory(arena->data(), arena->size());
  }

  int run() {
    LinkReport report(options_, worker_, reducers_, gather_ranks(session_));
    LinkResults results;
    results.pairs = {.workers = session_.ranks(), .reducers = reducers_.size(), .gb_per_second = {}};
    for (uint32_t rank = 0; rank < session_.ranks(); ++rank) {
      const std::vector<double> row = measure_worker(rank);
      results.pairs.gb_per_second.insert(results.pairs.gb_per_second.end(), row.begin(), row.end() - 1);
      results.alone.push_back(row.back());
      report.add(rank, row);
    }
    const double concurrent = measure(session_);
    results.concurrent = session_.reduce(session_.rank() == 0 ? concurrent : 0, kLinkOp);
    results.wrong = session_.reduce(wrong_, kLinkOp);
    const int code = report.finish(results);
    session_.close();
    return code;
  }

 private:
  // Returns the reducers without weights, because each reducer is measured alone.
  static std::vector<std::string> reducers_of(const WorkerOptions& worker) {
    std::vector<std::string> reducers;
    for (config::Endpoint& endpoint : value_or_fail(config::read_reducers(worker.reducers), kExitUsage)) {
      endpoint.weight = 1;
      reducers.push_back(config::to_string(endpoint));
    }
    return reducers;
  }

  // Returns GB/s of the worker with each reducer and, last, with all reducers. Collective: the other ranks
  // wait for the result.
  std::vector<double> measure_worker(uint32_t rank) {
    std::vector<double> row(reducers_.size() + 1, 0);
    if (rank == session_.rank()) {
      for (size_t r = 0; r < reducers_.size(); ++r) row[r] = measure_alone(reducers_[r]);
      row.back() = measure_alone(worker_.reducers);
    }
    session_.allreduce(row.data(), row.data(), row.size(), wire::DType::kF64, wire::Op::kSum);
    return row;
  }

  double measure_alone(const std::string& reducers) {
    WorkerOptions alone = worker_;
    alone.reducers = reducers;
    alone.session = random_session_id();
    alone.rank = 0;
    alone.ranks = 1;
    WorkerSession session(alone);
    const double rate = measure(session);
    session.close();
    return rate;
  }

  // Returns GB/s in each direction.
  double measure(WorkerSession& session) {
    const size_t count = options_.bytes / sizeof(float);
    const Pattern pattern(kLinkType, kLinkOp, session.ranks(), seed_++);
    pattern.fill(session.rank(), count, send_.data());
    std::fill_n(recv_.data(), options_.bytes, std::byte{0});
    std::vector<double> seconds;
    for (uint32_t i = 0; i < options_.warmup + options_.iterations; ++i) {
      const Nanos begin = monotonic_now();
      session.allreduce(send_.data(), recv_.data(), count, kLinkType, kLinkOp);
      if (i >= options_.warmup) seconds.push_back(1e-9 * static_cast<double>(monotonic_now() - begin));
    }
    wrong_ += pattern.count_wrong(recv_.data(), count);
    return 1e-9 * static_cast<double>(count * sizeof(float)) / median_of(std::move(seconds));
  }

  const LinkOptions& options_;
  const WorkerOptions& worker_;
  const std::vector<std::string> reducers_;
  WorkerSession session_;
  Arena send_;
  Arena recv_;
  uint64_t wrong_ = 0;
  uint64_t seed_ = 1;
};

}  // namespace

void check(const LinkOptions& options) {
  if (options.bytes < sizeof(float)) throw Failure(kExitUsage, "size is below 4 B, the size of a float");
  if (options.iterations == 0) throw Failure(kExitUsage, "iters is 0; expected a positive number");
  if (options.slow <= 0 || options.slow >= 1)
    throw Failure(kExitUsage, "slow: expected a number between 0 and 1");
}

int run_link(const LinkOptions& options, const WorkerOptions& worker) {
  return LinkRun(options, worker).run();
}

}  // namespace sluice::bench
