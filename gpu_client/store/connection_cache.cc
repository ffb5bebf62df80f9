#include "gpu_client/store/connection_cache.h"

#include <algorithm>

#include "core/clock.h"

namespace sluice::store_client {

Result<ConnectionCache::Borrowed> ConnectionCache::borrow(const config::Endpoint& reducer, Nanos deadline) {
  std::list<StoreConnection> connection;
  const auto take = [&] {
    connection.clear();
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(idle_, reducer, &StoreConnection::reducer);
    if (found != idle_.end()) connection.splice(connection.end(), idle_, found);
    return !connection.empty();
  };
  // A reducer ends connections that were idle for long. Nothing else arrives without a request.
  while (take() && connection.front().has_answer(monotonic_now())) {
  }
  if (connection.empty()) {
    SLUICE_ASSIGN_OR_RETURN(opened, StoreConnection::open(reducer, identity_, deadline));
    connection.push_back(std::move(opened));
  }
  return Borrowed(*this, std::move(connection));
}

void ConnectionCache::give_back(std::list<StoreConnection> connection) noexcept {
  std::list<StoreConnection> closed;  // without the mutex
  const std::lock_guard lock(mutex_);
  if (connection.front().valid()) {
    idle_.splice(idle_.begin(), connection);
    return;
  }
  // The reducer has ended, so each of these would cost a request.
  for (auto it = idle_.begin(); it != idle_.end();) {
    const auto next = std::next(it);
    if (it->reducer() == connection.front().reducer()) closed.splice(closed.end(), idle_, it);
    it = next;
  }
}

}  // namespace sluice::store_client
