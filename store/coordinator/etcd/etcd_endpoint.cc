#include "store/coordinator/etcd/etcd_endpoint.h"

namespace sluice::store::etcd {

Result<void> EtcdEndpoint::connect(HttpConnection& connection, Nanos deadline) {
  SLUICE_ASSIGN_OR_RETURN(addresses, lookup_.find(deadline));
  return connection.connect(addresses, deadline);
}

std::unique_ptr<HttpConnection> EtcdEndpoint::take_idle() {
  const std::lock_guard lock(mutex_);
  while (!idle_.empty()) {
    std::unique_ptr<HttpConnection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->is_idle()) return connection;
  }
  return nullptr;
}

void EtcdEndpoint::put_idle(std::unique_ptr<HttpConnection> connection) {
  if (!connection->is_idle()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(connection));
}

void EtcdEndpoint::drop_idle() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

}  // namespace sluice::store::etcd
