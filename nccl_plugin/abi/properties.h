// The properties of a device (ncclNetProperties) in every version. The layouts are NCCL's, checked against
// the table in tests/nccl/abi.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/abi/member.h"
#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/host/devices.h"

namespace sluice::nccl::abi {

template <int kMaxDevs>
struct VirtualDevice {
  int ndevs;
  int devs[kMaxDevs];
};

// Properties<N> is ncclNetProperties_vN.
template <int kVersion>
struct Properties {
  template <int kFirst, typename T, int kIndex = 0>
  using Since = Member<kVersion, From<kFirst, T, kIndex>>;

  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  [[no_unique_address]] Since<8, int> reg_is_global;
  [[no_unique_address]] Since<9, int> force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  [[no_unique_address]] Since<7, int> net_device_type;
  [[no_unique_address]] Since<7, int, 1> net_device_version;
  [[no_unique_address]] Since<9, VirtualDevice<(kVersion < 12 ? 4 : 8)>> vprops;
  [[no_unique_address]] Since<9, size_t> max_p2p_bytes;
  [[no_unique_address]] Since<9, size_t, 1> max_coll_bytes;
  [[no_unique_address]] Since<11, int> max_multi_request_size;
  [[no_unique_address]] Since<12, int16_t> rail_id;
  [[no_unique_address]] Since<12, int16_t, 1> plane_id;
};

// Sets every field of every version: NCCL's wrappers would copy an unset field from their stack. The strings
// belong to `device`.
template <int kVersion>
void fill(Properties<kVersion>& p, const Device& device, int index) noexcept {
  p.name = device.name.c_str();
  p.pci_path = device.pci_path.empty() ? nullptr : device.pci_path.c_str();
  p.guid = device.guid;
  p.ptr_support = kPointerHost;
  p.reg_is_global = 0;
  p.force_flush = 0;
  p.speed = static_cast<int>(device.speed_mbps);
  p.port = 0;
  p.latency = 0;  // selects NCCL's own model of the latency
  p.max_comms = 65536;
  p.max_recvs = 1;
  p.net_device_type = 0;  // no unpacking on the GPU
  p.net_device_version = 0;
  p.vprops = VirtualDevice<(kVersion < 12 ? 4 : 8)>{.ndevs = 1, .devs = {index}};
  p.max_p2p_bytes = size_t{1} << 30;
  p.max_coll_bytes = size_t{64} << 20;
  p.max_multi_request_size = 1;
  p.rail_id = -1;
  p.plane_id = -1;
}

}  // namespace sluice::nccl::abi
