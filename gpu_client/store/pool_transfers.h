// Struct PoolTransfers is what the clients of a process share that reach the same reducers as the same job:
// connections, and turns with their threads. A client with many models needs no more of them than one with
// few.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "config/endpoints.h"
#include "gpu_client/store/connection_cache.h"
#include "gpu_client/store/transfer_turns.h"

namespace sluice::store_client {

struct PoolTransfers {
  explicit PoolTransfers(engine::Identity identity) : connections(std::move(identity)) {}

  ConnectionCache connections;
  TransferTurns pushes{"sluice-push"};
  TransferTurns pulls{"sluice-pull"};
};

// The object that other clients of this process hold now, not of the process that it was forked from;
// otherwise a new one.
[[nodiscard]] std::shared_ptr<PoolTransfers> transfers_of(std::span<const config::Endpoint> reducers,
                                                          const engine::Identity& identity);

}  // namespace sluice::store_client
