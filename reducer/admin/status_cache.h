// Class StatusCache gets the reducer's status for all clients: concurrent requests share one query, and a
// young status is reused.
//
// HTTP thread only; the status source may call back on any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
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
  void get(Callback callback) {
    if (text_ && monotonic_now() - received_at_ < max_age_) return callback(text_);
    waiting_.push_back(std::move(callback));
    if (is_querying_) return;
    is_querying_ = true;
    timer_.expires_after(std::chrono::nanoseconds(timeout_));
    timer_.async_wait([this, query = ++query_](const boost::system::error_code& error) {
      if (error || query != query_ || !is_querying_) return;
      complete(nullptr);
    });
    source_([this, query = query_](std::string text) {
      asio::post(io_, [this, query, text = std::move(text)]() mutable { on_status(query, std::move(text)); });
    });
  }

 private:
  void on_status(uint64_t query, std::string text) {
    if (query != query_ || !is_querying_) return;
    timer_.cancel();
    text_ = std::make_shared<const std::string>(std::move(text));
    received_at_ = monotonic_now();
    complete(text_);
  }
  void complete(const Text& text) {
    is_querying_ = false;
    const std::vector<Callback> waiting = std::exchange(waiting_, {});
    for (const Callback& callback : waiting) callback(text);
  }

  asio::io_context& io_;
  Timer timer_;
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
