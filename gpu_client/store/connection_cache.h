// Class ConnectionCache has connections to reducers, which a caller borrows for one request or transfer,
// whichever model it is about. Any thread.
#pragma once

#include <exception>
#include <list>
#include <mutex>
#include <utility>

#include "gpu_client/store/store_connection.h"

namespace sluice::store_client {

class ConnectionCache {
 public:
  // The cache must outlive it. Gives the connection back when it is destroyed; closes it if an exception has
  // interrupted a request.
  class Borrowed {
   public:
    Borrowed(Borrowed&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), connection_(std::move(other.connection_)) {}
    Borrowed& operator=(Borrowed&&) = delete;
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() {
      if (cache_ == nullptr) return;
      if (std::uncaught_exceptions() > exceptions_) connection_.front().close();
      cache_->give_back(std::move(connection_));
    }
    [[nodiscard]] StoreConnection& operator*() noexcept { return connection_.front(); }
    [[nodiscard]] StoreConnection* operator->() noexcept { return &connection_.front(); }

   private:
    friend class ConnectionCache;
    Borrowed(ConnectionCache& cache, std::list<StoreConnection> connection) noexcept
        : cache_(&cache), connection_(std::move(connection)) {}

    ConnectionCache* cache_;
    std::list<StoreConnection> connection_;  // one
    int exceptions_ = std::uncaught_exceptions();
  };

  explicit ConnectionCache(engine::Identity identity) : identity_(std::move(identity)) {}

  // Connects if there is no connection to this reducer that nobody uses. Errors: see StoreConnection::open().
  // Such a connection may have broken meanwhile; then its first request fails with kReducerLost.
  [[nodiscard]] Result<Borrowed> borrow(const config::Endpoint& reducer, Nanos deadline);

 private:
  void give_back(std::list<StoreConnection> connection) noexcept;

  const engine::Identity identity_;
  std::mutex mutex_;
  std::list<StoreConnection> idle_;  // the last used first
};

}  // namespace sluice::store_client
