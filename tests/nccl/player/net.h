// Class Net calls the point-to-point table of a plugin, independent of its version. Each call is one call of
// the table, as NCCL makes it: output parameters hold arbitrary values, and the result is that of the plugin.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/nccl/player/library.h"
#include "tests/nccl/player/nccl_types.h"

namespace player {

struct DeviceFacts {
  std::string name, pci_path;
  uint64_t guid = 0;
  int ptr_support = 0, speed = 0, port = 0, max_comms = 0, max_recvs = 0;
  float latency = 0;
  int reg_is_global = 0, force_flush = 0, net_device_type = 0;
  int virtual_devices = 1, first_virtual_device = -1;            // v9 on
  size_t max_p2p_bytes = 1u << 30, max_coll_bytes = 512u << 20;  // v9 on; the defaults are those of NCCL
  int max_multi_request_size = 1;                                // v11 on
  int rail_id = -1, plane_id = -1;                               // v12

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

// DeviceCalls are the calls that Net and CollNet share.
class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;

  virtual std::string name() const = 0;
  // Up to v10, NCCL calls init once per process. From v11 on, NCCL calls it once per communicator, which gets
  // a context.
  virtual Result init(uint64_t comm_id, void** context) = 0;
  virtual Result devices(int* count) = 0;
  virtual Result properties(int device, DeviceFacts* facts) = 0;
  virtual Result listen(void* context, int device, void* handle, void** listener) = 0;
  virtual Result reg_mr(void* comm, void* data, size_t bytes, void** mhandle) = 0;
  virtual Result dereg_mr(void* comm, void* mhandle) = 0;
  virtual Result test(void* request, int* done, int* bytes) = 0;
  virtual Result close_listen(void* listener) = 0;
  // From v11 on; does nothing in earlier versions.
  virtual Result finalize(void* context) = 0;
};

class Net : public DeviceCalls {
 public:
  virtual Result connect(void* context, int device, void* handle, void** comm) = 0;
  virtual Result accept(void* listener, void** comm) = 0;
  virtual Result isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) = 0;
  virtual Result irecv(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) = 0;
  virtual Result close_send(void* comm) = 0;
  virtual Result close_recv(void* comm) = 0;
  [[nodiscard]] virtual bool init_per_communicator() const = 0;
};

inline constexpr int kFirstNetAbi = 5, kLastNetAbi = 12;
// Throws Failure if the file has no such table or if a required function is missing.
std::unique_ptr<Net> load_net(const Library& library, int abi);

}  // namespace player
