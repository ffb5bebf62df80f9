// The device properties of each ABI version. layout_checks.cc compares them with ../abi/layouts.tsv.
#pragma once

#include "tests/nccl/player/nccl_types.h"

namespace player {

struct PropsV5 {  // v6 too
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support, speed, port;
  float latency;
  int max_comms, max_recvs;
};
struct PropsV7 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support, speed, port;
  float latency;
  int max_comms, max_recvs, net_device_type, net_device_version;
};
struct PropsV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support, reg_is_global, speed, port;
  float latency;
  int max_comms, max_recvs, net_device_type, net_device_version;
};
template <int kDevices>
struct VirtualDevice {
  int ndevs;
  int devs[kDevices];
};
struct PropsV9 {  // v10 too
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support, reg_is_global, force_flush, speed, port;
  float latency;
  int max_comms, max_recvs, net_device_type, net_device_version;
  VirtualDevice<4> vprops;
  size_t max_p2p_bytes, max_coll_bytes;
};
struct PropsV11 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support, reg_is_global, force_flush, speed, port;
  float latency;
  int max_comms, max_recvs, net_device_type, net_device_version;
  VirtualDevice<4> vprops;
  size_t max_p2p_bytes, max_coll_bytes;
  int max_multi_request_size;
};
struct PropsV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support, reg_is_global, force_flush, speed, port;
  float latency;
  int max_comms, max_recvs, net_device_type, net_device_version;
  VirtualDevice<8> vprops;
  size_t max_p2p_bytes, max_coll_bytes;
  int max_multi_request_size;
  int16_t rail_id, plane_id;
};

}  // namespace player
