#include "reducer/admin/status_feed.h"

#include <chrono>

#include "core/clock.h"

namespace sluice::reducer::admin {

void StatusFeed::get(Taker taker) {
  if (text_ && monotonic_now() - told_at_ < age_) return taker(text_);
  waiting_.push_back(std::move(taker));
  if (asked_) return;
  asked_ = true;
  timer_.expires_after(std::chrono::nanoseconds(timeout_));
  timer_.async_wait([this, question = ++question_](const boost::system::error_code& error) {
    if (error || question != question_ || !asked_) return;
    give(nullptr);
  });
  ask_([this, question = question_](std::string text) {
    asio::post(io_, [this, question, text = std::move(text)]() mutable { told(question, std::move(text)); });
  });
}

void StatusFeed::told(uint64_t question, std::string text) {
  if (question != question_ || !asked_) return;
  timer_.cancel();
  text_ = std::make_shared<const std::string>(std::move(text));
  told_at_ = monotonic_now();
  give(text_);
}

void StatusFeed::give(const Text& text) {
  asked_ = false;
  const std::vector<Taker> waiting = std::exchange(waiting_, {});
  for (const Taker& taker : waiting) taker(text);
}

}  // namespace sluice::reducer::admin
