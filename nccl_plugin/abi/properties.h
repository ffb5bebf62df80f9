// The properties of a device (ncclNetProperties) in every version. The layouts are NCCL's, checked against
// the table in tests/nccl/abi.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/host/devices.h"

namespace sluice::nccl::abi {

struct PropertiesV6 {  // v5 and v6
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
};

struct PropertiesV7 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};

struct PropertiesV8 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};

template <int kMaxDevs>
struct VirtualDevice {
  int ndevs;
  int devs[kMaxDevs];
};

struct PropertiesV9 {  // v9 and v10
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VirtualDevice<4> vprops;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};

struct PropertiesV11 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VirtualDevice<4> vprops;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
};

struct PropertiesV12 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VirtualDevice<8> vprops;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
  int16_t rail_id;
  int16_t plane_id;
};

// Sets every field of every version: NCCL's wrappers would copy an unset field from their stack. The strings
// belong to `device`.
template <typename Properties>
void fill(Properties& p, const Device& device, int index) noexcept {
  p.name = device.name.c_str();
  p.pci_path = device.pci_path.empty() ? nullptr : device.pci_path.c_str();
  p.guid = device.guid;
  p.ptr_support = kPointerHost;
  p.speed = static_cast<int>(device.speed_mbps);
  p.port = 0;
  p.latency = 0;  // selects NCCL's own model of the latency
  p.max_comms = 65536;
  p.max_recvs = 1;
  if constexpr (requires { p.net_device_type; })
    p.net_device_type = p.net_device_version = 0;  // no unpacking on the GPU
  if constexpr (requires { p.reg_is_global; }) p.reg_is_global = 0;
  if constexpr (requires { p.force_flush; }) p.force_flush = 0;
  if constexpr (requires { p.vprops; }) {
    p.vprops = {};
    p.vprops.ndevs = 1;
    p.vprops.devs[0] = index;
  }
  if constexpr (requires { p.max_p2p_bytes; }) {
    p.max_p2p_bytes = size_t{1} << 30;
    p.max_coll_bytes = size_t{64} << 20;
  }
  if constexpr (requires { p.max_multi_request_size; }) p.max_multi_request_size = 1;
  if constexpr (requires { p.rail_id; }) p.rail_id = p.plane_id = -1;
}

}  // namespace sluice::nccl::abi
