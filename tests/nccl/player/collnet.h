#pragma once

#include "tests/nccl/player/net.h"

namespace player {

// CollNet calls the collective table of a plugin, independent of its version. As Net, each call is one call
// of the table.
class CollNet {
 public:
  virtual ~CollNet() = default;

  virtual std::string name() const = 0;
  virtual Result init(uint64_t comm_id, void** context) = 0;
  virtual Result devices(int* count) = 0;
  virtual Result properties(int device, DeviceFacts* facts) = 0;
  virtual Result listen(void* context, int device, void* handle, void** listener) = 0;
  virtual Result connect(void** handles, int ranks, int rank, void* listener, void** comm) = 0;
  virtual Result reduce_support(int type, int op, int* supported) = 0;
  virtual Result reg_mr(void* comm, void* data, size_t bytes, void** mhandle) = 0;
  virtual Result dereg_mr(void* comm, void* mhandle) = 0;
  virtual Result iallreduce(void* comm, void* send, void* receive, size_t count, DataType type, ReduceOp op,
                            void* send_mhandle, void* receive_mhandle, void** request) = 0;
  virtual Result test(void* request, int* done, int* bytes) = 0;
  virtual Result close_coll(void* comm) = 0;
  virtual Result close_listen(void* listener) = 0;
  virtual Result finalize(void* context) = 0;
};

inline constexpr int kFirstCollNetAbi = 8, kLastCollNetAbi = 12;
std::unique_ptr<CollNet> load_collnet(const Library& library, int abi);

}  // namespace player
