#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "nccl_plugin/net/connector.h"

namespace sluice::nccl::net {

// PendingConnects holds the connects in progress. NCCL's handle keeps only an id between the calls, not a
// pointer: the peer creates the handle and could choose the pointer. Any thread, but one thread at a time per
// connect.
class PendingConnects {
 public:
  // Returns null when no connect has this id and secret.
  [[nodiscard]] Connector* find(uint64_t id, const Secret& secret);
  // Returns the id of the added connect, never 0. Removes abandoned connects.
  [[nodiscard]] uint64_t add(std::unique_ptr<Connector> connector, Nanos now);
  void remove(uint64_t id);

 private:
  std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::unique_ptr<Connector>> connectors_;
};

}  // namespace sluice::nccl::net
