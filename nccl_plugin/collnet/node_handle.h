#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "nccl_plugin/abi/types.h"

namespace sluice::nccl::collnet {

// NodeHandle is what a node writes into NCCL's handle of 128 bytes for the other nodes.
struct NodeHandle {
  std::array<uint8_t, 16> identity{};  // random; identifies the node in this head of the communicator
  std::string address;                 // numeric; where Consensus connects
  uint16_t port = 0;                   // 0: the node could not listen
  friend bool operator==(const NodeHandle&, const NodeHandle&) = default;
};

void encode_node_handle(const NodeHandle& handle, std::span<std::byte, abi::kHandleBytes> out) noexcept;
// kBadMagic: handle of another plugin. kBadVersion: handle of another version.
[[nodiscard]] Result<NodeHandle> decode_node_handle(std::span<const std::byte, abi::kHandleBytes> in);

// kInvalidArgument when two nodes have the same identity.
[[nodiscard]] Result<void> check_distinct(const std::vector<NodeHandle>& nodes);

// The first 16 bytes of SHA-256 over the sorted identities. NCCL's communicator id is not usable, because the
// heads of a communicator share it.
[[nodiscard]] SessionId session_id_of(const std::vector<NodeHandle>& nodes);

}  // namespace sluice::nccl::collnet
