#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/units.h"
#include "nccl_plugin/collnet/node_handle.h"

namespace sluice::nccl::collnet {

// PeerSet is the set of nodes that connect a communicator, as one of them sees it.
struct PeerSet {
  std::vector<NodeHandle> nodes;  // in rank order
  uint32_t rank = 0;              // of this node
  SessionId session;              // proves membership: only these nodes know it
  std::string common_text;        // what must be equal on all nodes: the list of reducers
  std::string remedy;             // for lists that differ
  std::string local_address;

  // "node 3 (10.0.0.3)"
  [[nodiscard]] std::string name(uint32_t of) const {
    return "node " + std::to_string(of) + " (" + nodes[of].address + ")";
  }
};

struct ConnectTimeouts {
  // For one TCP connection to a node. The port of a node is open since its handle was created, so a node that
  // does not accept in this time is lost or unreachable.
  Nanos connect = 0;
  // For all nodes to connect, from the first node on; the smallest value of the nodes applies. The other
  // nodes wait equally long for the coordinator.
  Nanos join = 0;
};

}  // namespace sluice::nccl::collnet
