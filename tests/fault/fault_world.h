// n worker exchanges and R reducer lanes over inproc connections with seeded faults in between; one thread, a
// clock that the world moves. The part of a conductor that matters here is played: a lane that loses a rank
// ends its session on every lane.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "gpu_client/engine/exchange.h"
#include "reducer/lane/lane.h"
#include "transport/fault/fault_context.h"
#include "transport/inproc/inproc_network.h"
#include "wire/view.h"

namespace sluice::test {

struct WorldOptions {
  uint32_t ranks = 3;
  uint32_t reducers = 2;
  uint32_t slot_bytes = 16 * kKiB;
  uint32_t slots = 3;
  uint32_t operations = 12;
  uint64_t seed = 1;
  std::vector<transport::fault::FaultRule> worker_faults;   // on what workers put, own seed for each worker
  std::vector<transport::fault::FaultRule> reducer_faults;  // on what lanes put
};

class FaultWorld {
 public:
  explicit FaultWorld(const WorldOptions& options);
  ~FaultWorld();

  // Until every operation of every rank has ended. False when that takes more than `turns` turns.
  [[nodiscard]] bool run(uint64_t turns = 2'000'000);

  struct Outcome {
    uint32_t right = 0;   // ended with kOk, every element right
    uint32_t wrong = 0;   // ended with kOk, some element not: must never be
    uint32_t failed = 0;  // ended with a reason
  };
  [[nodiscard]] Outcome outcome() const;
  [[nodiscard]] transport::fault::FaultCounters faults() const;
  // Why the session ended at each rank; kOk where it did not.
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
  void play_conductor();
  void end_session();

  const WorldOptions options_;
  Nanos now_ = kSecond;
  std::unique_ptr<transport::inproc::Network> network_;
  std::vector<std::unique_ptr<Reducer>> reducers_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Errc> reasons_;
  bool session_over_ = false;
};

}  // namespace sluice::test
