#include "store/coordinator/etcd/etcd_endpoint.h"

namespace sluice::store::etcd {

Result<void> EtcdEndpoint::connect(HttpConnection& connection, Nanos deadline) {
  SLUICE_ASSIGN_OR_RETURN(addresses, lookup_.find(deadline));
  return connection.connect(addresses, deadline);
}

std::unique_ptr<Channel> EtcdEndpoint::take_idle() {
  const std::lock_guard lock(mutex_);
  while (!idle_.empty()) {
    std::unique_ptr<Channel> channel = std::move(idle_.back());
    idle_.pop_back();
    if (channel->connection.is_idle()) return channel;
  }
  return nullptr;
}

void EtcdEndpoint::put_idle(std::unique_ptr<Channel> channel) {
  if (!channel->connection.is_idle()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(channel));
}

void EtcdEndpoint::drop_idle() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

}  // namespace sluice::store::etcd
