// Function read_properties converts the device properties of any ABI version to DeviceFacts.
#pragma once

#include <cstring>

#include "tests/nccl/player/net.h"

namespace player {

// NCCL passes uninitialized memory. A field that the plugin does not write keeps this pattern.
inline constexpr unsigned char kUninitialized = 0xa5;

template <typename Props, typename Call>
Result read_properties(Call call, DeviceFacts* facts) {
  Props props;
  std::memset(static_cast<void*>(&props), kUninitialized, sizeof(props));
  const Result result = call(&props);
  if (result != kSuccess) return result;
  *facts = {};
  facts->name = props.name;
  if (props.pci_path != nullptr) facts->pci_path = props.pci_path;
  facts->guid = props.guid;
  facts->ptr_support = props.ptr_support;
  facts->speed = props.speed;
  facts->port = props.port;
  facts->latency = props.latency;
  facts->max_comms = props.max_comms;
  facts->max_recvs = props.max_recvs;
  if constexpr (requires { props.net_device_type; }) facts->net_device_type = props.net_device_type;
  if constexpr (requires { props.reg_is_global; }) facts->reg_is_global = props.reg_is_global;
  if constexpr (requires { props.force_flush; }) facts->force_flush = props.force_flush;
  if constexpr (requires { props.vprops; }) {
    facts->virtual_devices = props.vprops.ndevs;
    facts->first_virtual_device = props.vprops.devs[0];
    facts->max_p2p_bytes = props.max_p2p_bytes;
    facts->max_coll_bytes = props.max_coll_bytes;
  }
  if constexpr (requires { props.max_multi_request_size; })
    facts->max_multi_request_size = props.max_multi_request_size;
  if constexpr (requires { props.rail_id; }) {
    facts->rail_id = props.rail_id;
    facts->plane_id = props.plane_id;
  }
  return result;
}

}  // namespace player
