// Class EtcdEndpoint is one server of an etcd cluster with its idle connections. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "store/coordinator/etcd/address_lookup.h"
#include "store/coordinator/etcd/http_connection.h"

namespace sluice::store::etcd {

class EtcdEndpoint {
 public:
  explicit EtcdEndpoint(const config::Endpoint& endpoint)
      : address_(config::to_string(endpoint)), lookup_(endpoint.host, endpoint.port) {}

  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  // "etcd at 127.0.0.1:2379", for messages.
  [[nodiscard]] std::string name() const { return "etcd at " + address_; }

  // Connects `connection`. Errors: those of AddressLookup and HttpConnection.
  [[nodiscard]] Result<void> connect(HttpConnection& connection, Nanos deadline);

  // An idle connection that the server has not closed, or null.
  [[nodiscard]] std::unique_ptr<HttpConnection> take_idle();
  // Keeps `connection` for the next request, if it is usable.
  void put_idle(std::unique_ptr<HttpConnection> connection);
  void drop_idle();

 private:
  static constexpr size_t kMaxIdle = 8;
  const std::string address_;
  AddressLookup lookup_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<HttpConnection>> idle_;
};

}  // namespace sluice::store::etcd
