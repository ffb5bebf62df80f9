#include "reducer/admin/status_cache.h"

#include <chrono>

#include "core/clock.h"

namespace sluice::reducer::admin {

void StatusCache::get(Callback callback) {
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

void StatusCache::on_status(uint64_t query, std::string text) {
  if (query != query_ || !is_querying_) return;
  timer_.cancel();
  text_ = std::make_shared<const std::string>(std::move(text));
  received_at_ = monotonic_now();
  complete(text_);
}

void StatusCache::complete(const Text& text) {
  is_querying_ = false;
  const std::vector<Callback> waiting = std::exchange(waiting_, {});
  for (const Callback& callback : waiting) callback(text);
}

}  // namespace sluice::reducer::admin
