// Class StatusCache gets the reducer's status for all clients: concurrent requests share one query, and a
// young status is reused.
//
// HTTP thread only; the status source may call back on any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/units.h"
#include "reducer/admin/beast.h"
#include "reducer/admin/http_server.h"

namespace sluice::reducer::admin {

class StatusCache {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Callback = std::function<void(const Text&)>;  // null: the reducer did not answer in time

  StatusCache(asio::io_context& io, const HttpOptions& options, StatusSource source)
      : io_(io),
        timer_(io),
        timeout_(options.status_timeout),
        max_age_(options.status_max_age),
        source_(std::move(source)) {}

  // Calls back exactly once, within this call or later on the same thread.
  void get(Callback callback);

 private:
  void on_status(uint64_t query, std::string text);
  void complete(const Text& text);

  asio::io_context& io_;
  asio::steady_timer timer_;
  const Nanos timeout_;
  const Nanos max_age_;
  const StatusSource source_;
  std::vector<Callback> waiting_;
  uint64_t query_ = 0;  // number of the last query; answers to earlier ones are late
  bool is_querying_ = false;
  Text text_;
  Nanos received_at_ = 0;
};

}  // namespace sluice::reducer::admin
