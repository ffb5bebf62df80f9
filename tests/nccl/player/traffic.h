// Collectives over a communicator as NCCL's proxy progress thread posts them: cut into steps, eight steps
// open for each group of eight channels, one order on all ranks, every result checked.
#pragma once

#include <functional>

#include "tests/nccl/player/communicator.h"

namespace player {

struct Operation {
  DataType type = kFloat32;
  ReduceOp op = kSum;
  size_t bytes = 0;  // of the message; the last request is padded to a whole chunk
  int channels = 2;
  size_t chunk_bytes = 32u << 10;
  uint64_t seed = 1;
  bool in_place = false;  // send == receive, as with user buffers that are registered
};

struct TrafficCounts {
  uint64_t requests = 0, retries = 0;
};

class Traffic {
 public:
  // After connect and register_region.
  explicit Traffic(Communicator& communicator);

  // Finds in which order the ranks' contributions are folded, which is the plugin's choice; to be called by
  // all ranks before run().
  void learn_order();
  // All on the progress thread. Throws Failure and CallFailed.
  void run(const std::vector<Operation>& operations);
  // Posts `count` requests and leaves them open, tested once each.
  void leave_open(const Operation& operation, int count);

  std::function<void()> before_first;  // called once, on the progress thread
  [[nodiscard]] const TrafficCounts& counts() const { return counts_; }
  [[nodiscard]] const std::vector<int>& order() const { return order_; }

 private:
  struct GroupState;

  void run_one(const Operation& operation);
  bool post(const Operation& operation, GroupState& group);
  bool test(const Operation& operation, GroupState& group);
  void prepare(const Operation& operation, const GroupState& group);
  void verify(const Operation& operation, const GroupState& group);
  [[nodiscard]] std::byte* slot(const Operation& operation, bool receives, size_t step, int first_channel);

  Communicator& communicator_;
  std::vector<int> order_;  // of places, by fold
  TrafficCounts counts_;
  std::vector<std::byte> expected_;
  std::vector<std::vector<std::byte>> contributions_;
};

}  // namespace player
