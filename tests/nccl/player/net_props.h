// The device properties of each ABI version. layout_checks.cc compares them with ../abi/layouts.tsv.
#pragma once

#include "tests/nccl/player/nccl_types.h"

namespace player {

template <int kDevices>
struct VirtualDevice {
  int ndevs;
  int devs[kDevices];
};

template <int kAbi>
struct Props {
  template <int kFirst, typename T, int kIndex = 0>
  using Since = Member<kAbi, From<kFirst, T, kIndex>>;
  using Virtual = VirtualDevice<(kAbi < 12 ? 4 : 8)>;

  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  [[no_unique_address]] Since<8, int> reg_is_global;
  [[no_unique_address]] Since<9, int> force_flush;
  int speed, port;
  float latency;
  int max_comms, max_recvs;
  [[no_unique_address]] Since<7, int> net_device_type;
  [[no_unique_address]] Since<7, int, 1> net_device_version;
  [[no_unique_address]] Since<9, Virtual> vprops;
  [[no_unique_address]] Since<9, size_t> max_p2p_bytes;
  [[no_unique_address]] Since<9, size_t, 1> max_coll_bytes;
  [[no_unique_address]] Since<11, int> max_multi_request_size;
  [[no_unique_address]] Since<12, int16_t> rail_id;
  [[no_unique_address]] Since<12, int16_t, 1> plane_id;
};

}  // namespace player
