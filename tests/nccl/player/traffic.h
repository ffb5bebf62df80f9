// Class Traffic runs collectives on a communicator like the progress thread of NCCL's proxy and checks every
// result. A collective is divided into steps; each group of eight channels has eight open steps. The order is
// the same on all ranks.
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
  bool in_place = false;  // send == receive, as with registered user buffers
};

struct TrafficCounts {
  uint64_t requests = 0, retries = 0;
};

class Traffic {
 public:
  // Must be created after connect and register_region.
  explicit Traffic(Communicator& communicator);

  // Finds the order in which the plugin folds the contributions of the ranks. All ranks must call it before
  // run().
  void find_fold_order();
  // Runs all operations on the progress thread. Throws Failure and CallFailed.
  void run(const std::vector<Operation>& operations);
  // Posts `count` requests, tests each once and leaves them open.
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
  std::vector<int> order_;  // positions in fold order
  TrafficCounts counts_;
  std::vector<std::byte> expected_;
  std::vector<std::vector<std::byte>> contributions_;
};

}  // namespace player
