#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/nccl/player/collnet.h"
#include "tests/nccl/player/job.h"
#include "tests/nccl/player/worker.h"

namespace player {

// The ranks of a communicator, and the position of this rank.
struct Group {
  std::string name;  // of the communicator and head, the same on all its ranks
  int ranks = 0;     // nodes
  int rank = 0;      // node
  // Position of this rank's handle in the array of connect(). NCCL from 2.21 on sorts the array by the rank
  // of the head, so the position may differ from `rank`.
  int place = 0;
  int device = 0;
};

struct Geometry {
  int channels = 2;
  size_t buffer_bytes = 4u << 20;  // per channel and direction: NCCL_BUFFSIZE

  [[nodiscard]] size_t slot_bytes() const { return buffer_bytes / kSteps; }
  [[nodiscard]] size_t region_bytes() const { return 2 * static_cast<size_t>(channels) * buffer_bytes; }
};

// Communicator drives one collective communicator of one head in NCCL's order and with NCCL's threads: a
// service thread for setup and teardown, and a progress thread for data.
class Communicator {
 public:
  Communicator(Rank& rank, CollNet& collnet, void* context, Group group, Geometry geometry);
  // Closes nothing: open objects stay open, as after a crash.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // listen, all-gather of the handles, connect, closeListen. Returns the result of connect. After a failure
  // only the destructor may be called, because NCCL does not close the listener then.
  Result connect();
  // Acts as a rank that listens and never connects. `close_listener`: its process ends.
  void only_listen(bool close_listener);
  // Registers the region twice per channel.
  void register_region();
  // Deregisters the send buffers, makes the region inaccessible, deregisters the receive buffers, and closes
  // the comm.
  void close();

  // For traffic.h.
  [[nodiscard]] CollNet& collnet() { return collnet_; }
  [[nodiscard]] void* comm() { return comm_; }
  [[nodiscard]] std::byte* region() { return region_; }
  [[nodiscard]] void* send_mhandle() { return send_mhandles_.front(); }
  [[nodiscard]] void* receive_mhandle() { return receive_mhandles_.front(); }
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] Rank& rank() { return rank_; }
  [[nodiscard]] Worker& service() { return service_; }
  [[nodiscard]] Worker& progress() { return progress_; }
  std::function<void()> before_connect;  // called when all handles are exchanged
  size_t step_base = 0;                  // steps of earlier collectives; progress thread

 private:
  void listen(Block* handle);

  Rank& rank_;
  CollNet& collnet_;
  void* const context_;
  const Group group_;
  const Geometry geometry_;
  void* listener_ = nullptr;
  void* comm_ = nullptr;
  std::byte* region_ = nullptr;
  std::vector<void*> send_mhandles_, receive_mhandles_;
  Worker service_, progress_;
};

}  // namespace player
