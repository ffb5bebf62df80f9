// One rank's end of point-to-point connections, driven as NCCL's proxy does: connect and accept by turns
// until both are there, then requests from one thread.
#pragma once

#include <vector>

#include "tests/nccl/player/job.h"
#include "tests/nccl/player/plugin.h"

namespace player {

// Sends to one peer and receives from another.
struct NetLink {
  void* listener = nullptr;
  void* send_comm = nullptr;
  void* receive_comm = nullptr;
};

// All ranks call this: each sends to the rank `distance` further on.
NetLink connect_link(Rank& rank, Plugin& plugin, const Contexts& contexts, int distance,
                     const std::string& name);

struct Flow {
  std::vector<size_t> sizes;  // of messages, the same on all ranks
  int window = 8;             // requests open at a time, each way
  uint64_t seed = 1;
  bool close_early = false;  // the sending end is closed as soon as its last request is done
};

// Sends `flow` to one peer and receives it from the other; every byte and size is checked. Throws Failure.
void run_flow(Rank& rank, Plugin& plugin, NetLink& link, int distance, const Flow& flow);
void close_link(Plugin& plugin, NetLink& link);

}  // namespace player
