// Who agrees with whom, and how long they wait for each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/units.h"
#include "nccl_plugin/collnet/handle.h"

namespace sluice::nccl::collnet {

struct Party {
  std::vector<Contact> nodes;  // in rank order
  uint32_t rank = 0;
  SessionId session;   // known to these nodes only: a stranger at the leader's port can't say it
  std::string common;  // what must be the same on all: the list of reducers; told in words where it differs
  std::string local_address;

  // "node 3 (10.0.0.3)"
  [[nodiscard]] std::string name(uint32_t of) const {
    return "node " + std::to_string(of) + " (" + nodes[of].address + ")";
  }
};

struct Patience {
  // For a connection to a node, whose port has been open since its handle was made: when it has not come
  // about by then, the node is gone or can't be reached.
  Nanos call = 0;
  // For all nodes to have come, from the first one's coming on; the smallest of the nodes counts. The node
  // that leads is waited for like any other.
  Nanos late = 0;
};

}  // namespace sluice::nccl::collnet
