// Chunk schedulers of n workers and lanes of R reducers over inproc connections with seeded faults in
// between.
//
// One thread with a simulated clock. Like the control loop, it ends the session on every lane once a lane
// loses a rank.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "reducer/lane/lane.h"
#include "tests/support/transport/fault_context.h"
#include "tests/support/transport/inproc_network.h"
#include "wire/view.h"

namespace sluice::test {

struct FaultTestOptions {
  uint32_t ranks = 3;
  uint32_t reducers = 2;
  uint32_t slot_bytes = 16 * kKiB;
  uint32_t slots = 3;
  uint32_t operations = 12;
  uint64_t seed = 1;
  std::vector<transport::fault::FaultRule> worker_faults;   // on frames of workers, with a seed per worker
  std::vector<transport::fault::FaultRule> reducer_faults;  // on frames of lanes
};

class FaultTestBed {
 public:
  explicit FaultTestBed(const FaultTestOptions& options);
  ~FaultTestBed();

  // Runs until every operation of every rank has ended. False if that takes more than `turns` turns.
  [[nodiscard]] bool run(uint64_t turns = 2'000'000);

  struct Outcome {
    uint32_t correct = 0;  // ended with kOk and the correct elements
    uint32_t wrong = 0;    // ended with kOk and a wrong element: must never happen
    uint32_t failed = 0;   // ended with an error
  };
  [[nodiscard]] Outcome outcome() const;
  [[nodiscard]] transport::fault::FaultCounters faults() const;
  // Why the session ended on each rank; kOk if it did not.
  [[nodiscard]] const std::vector<Errc>& reasons() const noexcept { return reasons_; }

 private:
  struct Worker;
  struct Reducer;
  struct PendingOperation {
    uint32_t index = 0;
    std::vector<float> send, recv, expected;
  };
  void open_operations();
  void turn();
  void handle_lane_events();
  void end_session();

  const FaultTestOptions options_;
  Nanos now_ = kSecond;
  std::unique_ptr<transport::inproc::Network> network_;
  std::vector<std::unique_ptr<Reducer>> reducers_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Errc> reasons_;
  bool session_ended_ = false;
};

}  // namespace sluice::test
