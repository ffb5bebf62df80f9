#pragma once

#include "tests/nccl/player/net.h"

namespace player {

// CollNet calls the collective table of a plugin, independent of its version. As Net, each call is one call
// of the table.
class CollNet : public DeviceCalls {
 public:
  virtual Result connect(void** handles, int ranks, int rank, void* listener, void** comm) = 0;
  virtual Result reduce_support(int type, int op, int* supported) = 0;
  virtual Result iallreduce(void* comm, void* send, void* receive, size_t count, DataType type, ReduceOp op,
                            void* send_mhandle, void* receive_mhandle, void** request) = 0;
  virtual Result close_coll(void* comm) = 0;
};

inline constexpr int kFirstCollNetAbi = 8, kLastCollNetAbi = 12;
std::unique_ptr<CollNet> load_collnet(const Library& library, int abi);

}  // namespace player
