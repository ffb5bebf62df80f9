// One rank's side of point-to-point connections, used as by NCCL's proxy: connect and accept alternate until
// both succeed; then one thread posts all requests.
#pragma once

#include <vector>

#include "tests/nccl/player/job.h"
#include "tests/nccl/player/plugin.h"

namespace player {

// The comms to send to one peer and to receive from another.
struct NetLink {
  void* listener = nullptr;
  void* send_comm = nullptr;
  void* receive_comm = nullptr;
};

// All ranks call this. Rank r sends to rank r + distance, modulo the number of ranks.
NetLink connect_link(Rank& rank, Plugin& plugin, const Contexts& contexts, int distance,
                     const std::string& name);

struct Flow {
  std::vector<size_t> sizes;  // of messages, the same on all ranks
  int window = 8;             // open requests in each direction
  uint64_t seed = 1;
  bool close_early = false;  // the sender closes as soon as its last request is done
};

// Sends `flow` to one peer, receives it from the other, and checks every byte and size. Throws Failure.
void run_traffic(Rank& rank, Plugin& plugin, NetLink& link, int distance, const Flow& flow);
void close_link(Plugin& plugin, NetLink& link);

}  // namespace player
