#include "bench/e2e/star/star_worker.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/star/star_client.h"
#include "bench/e2e/workload/pattern.h"
#include "core/arena.h"

namespace sluice::bench {
namespace {

void print_answer(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace

int run_star_worker(const StarWorkerOptions& options, const WorkerOptions& worker) {
  const size_t count = options.bytes / sizeof(float);
  Arena send = value_or_fail(Arena::map(options.bytes), kExitFailure);
  Arena recv = value_or_fail(Arena::map(options.bytes), kExitFailure);
  const Pattern pattern(wire::DType::kF32, wire::Op::kSum, worker.ranks, 1);
  pattern.fill(worker.rank, count, send.data());

  StarClient star({.host = "127.0.0.1", .port = options.star_port},
                  {.workers = worker.ranks,
                   .slots = star_slots(options.window_bytes, options.chunk_bytes),
                   .chunk_bytes = options.chunk_bytes},
                  StarWait::kSleep);
  WorkerSession session(worker);
  print_answer("ready");
  for (int command = std::getchar(); command != EOF; command = std::getchar()) {
    switch (command) {
      case kStarRound:
        star.exchange(send.data(), recv.data(), options.bytes);
        print_answer("done");
        break;
      case kReducerRound:
        session.allreduce(send.data(), recv.data(), count, wire::DType::kF32, wire::Op::kSum);
        print_answer("done");
        break;
      case kCheckRound: print_answer(std::to_string(pattern.count_wrong(recv.data(), count))); break;
      default: throw Failure(kExitFailure, fmt::format("unknown command {} on stdin", command));
    }
  }
  session.close();
  return kExitOk;
}

}  // namespace sluice::bench
