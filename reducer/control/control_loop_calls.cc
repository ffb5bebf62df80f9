// Calls of ControlLoop from other threads: they post their work, and some wait for its end.
#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "reducer/control/control_loop.h"

namespace sluice::reducer {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);  // of threads that wait for the loop

}  // namespace

void ControlLoop::drain() noexcept {
  asio::post(io_, [this] { begin_drain(); });
}

void ControlLoop::stop() noexcept {
  asio::post(io_, [this] { begin_stop(Errc::kShutdown, "the reducer was stopped"); });
}

// Streams that the old TLS context opened stay valid: transport/tls/abi.h.
void ControlLoop::apply_options(const ReloadableOptions& options,
                                std::shared_ptr<const transport::tcp::TlsContext> tls,
                                std::vector<config::Secret> keys) {
  static_cast<ReloadableOptions&>(options_) = options;
  tls_ = std::move(tls);
  const bool has_old_key = keys.size() > 1;
  admission_.replace_keys(std::move(keys));
  const auto ranks_with = [this](Connection::PoolKey key) {
    return std::ranges::count_if(connections_,
                                 [key](const auto& c) { return c->is_control() && c->pool_key() == key; });
  };
  if (has_old_key)
    log_.info(std::to_string(ranks_with(Connection::PoolKey::kOld)) + " ranks joined with the old pool key");
  if (const auto dropped = ranks_with(Connection::PoolKey::kDropped); dropped > 0) {
    log_.warn(std::to_string(dropped) +
              " ranks joined with a pool key that was removed; their sessions continue, but a rank that "
              "loses a connection cannot come back");
  }
  // Lanes read the weights while they update the shares.
  fair_.with([this](const FairShares&) { sessions_.tenants().update_weights(); });
}

template <typename Answer>
Answer ControlLoop::query(const std::function<Answer()>& work) {
  std::promise<Answer> promise;
  auto future = promise.get_future();
  asio::post(io_, [&work, &promise] {
    try {
      promise.set_value(work());
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  });
  return await(std::move(future));
}

template <typename Answer>
Answer ControlLoop::await(std::future<Answer> future) {
  // A loop that has ended runs no handlers. Its thread may still be exiting and other threads may wait as
  // well, so one of them at a time runs the handlers in its place.
  while (future.wait_for(kPollInterval) != std::future_status::ready) {
    if (!io_.stopped()) continue;
    const std::lock_guard lock(ended_mutex_);
    if (thread_.joinable()) thread_.join();
    io_.restart();
    io_.poll();
  }
  return future.get();
}

void ControlLoop::reconfigure(const ReloadableOptions& options,
                              std::shared_ptr<const transport::tcp::TlsContext> tls,
                              std::vector<config::Secret> keys) {
  static_cast<void>(query<bool>([&] {
    apply_options(options, std::move(tls), std::move(keys));
    return true;
  }));
}

std::string ControlLoop::query_status() {
  std::promise<std::string> promise;
  auto future = promise.get_future();
  request_status([&promise](std::string text) { promise.set_value(std::move(text)); });
  return await(std::move(future));
}

bool ControlLoop::has_session(const SessionId& session) {
  return query<bool>([&] { return sessions_.find(session) != nullptr; });
}

bool ControlLoop::end_meeting(const SessionId& session) {
  return query<bool>([&] {
    gathers_.end(session);
    return gathers_.owes_reason(session);
  });
}

void ControlLoop::forget_meeting(const SessionId& session) {
  static_cast<void>(query<bool>([&] {
    gathers_.forget(session);
    return true;
  }));
}

bool ControlLoop::is_responsive(Nanos timeout) {
  const auto reached = std::make_shared<std::promise<void>>();  // may outlive this call
  const auto future = reached->get_future();
  asio::post(io_, [reached] { reached->set_value(); });
  const Nanos deadline = monotonic_now() + timeout;
  while (future.wait_for(kPollInterval) != std::future_status::ready) {
    if (io_.stopped()) return true;
    if (monotonic_now() >= deadline) return false;
  }
  return true;
}

void ControlLoop::request_status(std::function<void(std::string)> reply) {
  asio::post(io_, [this, reply = std::move(reply)]() mutable { answer_status(std::move(reply)); });
}

void ControlLoop::answer_status(std::function<void(std::string)> reply) {
  status_replies_.push_back(std::move(reply));
  if (status_replies_.size() > 1) return;
  sessions_.begin_survey();
  survey_sessions();
}

void ControlLoop::survey_sessions() {
  std::string text;
  bool is_complete = true;
  run_logged([&] {
    now_ = monotonic_now();
    if (sessions_.survey_some(now_)) {
      asio::post(io_, [this] { survey_sessions(); });
      is_complete = false;
    } else {
      text = status_json();
    }
  });
  if (!is_complete) return;
  for (const auto& reply : std::exchange(status_replies_, {})) run_logged([&] { reply(text); });
}

}  // namespace sluice::reducer
