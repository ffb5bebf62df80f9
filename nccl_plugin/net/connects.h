// Connects under way. NCCL's handle keeps only a number between calls: a pointer would be one that the peer,
// who made the handle, could choose.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "nccl_plugin/net/connector.h"

namespace sluice::nccl::net {

// Any thread; one connect is not used by two at a time.
class Connects {
 public:
  // Null when there is none of that number and secret.
  [[nodiscard]] Connector* find(uint64_t number, const Secret& secret);
  // Its number, never 0. Drops those that NCCL has forgotten.
  [[nodiscard]] uint64_t add(std::unique_ptr<Connector> connector, Nanos now);
  void remove(uint64_t number);

 private:
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::unique_ptr<Connector>> under_way_;
};

}  // namespace sluice::nccl::net
