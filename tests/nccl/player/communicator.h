// One collective communicator of one head, driven in NCCL's order and from NCCL's threads: a service thread
// sets up and takes down, a progress thread moves data.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/nccl/player/collnet.h"
#include "tests/nccl/player/job.h"
#include "tests/nccl/player/worker.h"

namespace player {

// Who takes part, and as whom.
struct Group {
  std::string name;  // of the communicator and head, the same on all its ranks
  int ranks = 0;     // nodes
  int rank = 0;      // node
  // Place of this rank's handle in the array that connect gets. NCCL from 2.21 on sorts it by the rank of the
  // head, so that it need not be `rank`.
  int place = 0;
  int device = 0;
};

struct Geometry {
  int channels = 2;
  size_t buffer_bytes = 4u << 20;  // per channel and direction: NCCL_BUFFSIZE

  [[nodiscard]] size_t slot_bytes() const { return buffer_bytes / kSteps; }
  [[nodiscard]] size_t region_bytes() const { return 2 * static_cast<size_t>(channels) * buffer_bytes; }
};

class Communicator {
 public:
  Communicator(Rank& rank, CollNet& collnet, void* context, Group group, Geometry geometry);
  // Takes nothing down: what is not closed stays open, as after a crash.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // listen, all-gather of the handles, connect, closeListen. The result is connect's; after a failure nothing
  // more may be called but the destructor, since NCCL forgets the rest.
  Result connect();
  // As a rank that listens and never connects; `gone`: as one whose process ends.
  void only_listen(bool gone);
  // regMr of the region, twice for each channel.
  void register_region();
  // deregMr of what sends, the region is gone, deregMr of what receives, closeColl.
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
  std::function<void()> before_connect;  // called when all handles are known
  size_t step_base = 0;                  // steps of earlier collectives; progress thread's

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
