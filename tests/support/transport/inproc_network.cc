#include "tests/support/transport/inproc_network.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "core/units.h"
#include "transport/memory/pipe_endpoint.h"

namespace sluice::transport::inproc {
namespace {

using memory::PipeEndpoint;

// Signal is the condition that an inproc context sleeps on.
class Signal final : public memory::Waker {
 public:
  void notify() noexcept override {
    const std::lock_guard lock(mutex_);
    work_ = true;
    changed_.notify_one();
  }

  // Any thread. Only wait() consumes a wake(): one between the owner's last check and its wait() is not lost.
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }

  // Owner thread, before it processes all work notified so far.
  void clear_work() {
    const std::lock_guard lock(mutex_);
    work_ = false;
  }

  // Owner thread. timeout < 0: no limit.
  void wait(Nanos timeout) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return work_ || woken_; };
    if (timeout < 0) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(timeout), ready);
    }
    woken_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool work_ = false;
  bool woken_ = false;
};

class InprocContext final : public Context {
 public:
  unsigned poll(Nanos /*now*/, size_t budget_bytes) noexcept override {
    signal_->clear_work();
    unsigned done = 0;
    // Uses an index, because a test may connect() from within a callback.
    for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->poll(budget_bytes);
    // Repeats until no endpoint is closing, because a callback of finish() may close an earlier endpoint.
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < endpoints_.size(); ++i) {
        if (!endpoints_[i]->can_finish()) continue;
        endpoints_[i]->finish();
        endpoints_.erase(endpoints_.begin() + static_cast<std::ptrdiff_t>(i));
        ++done;
        again = true;
        break;
      }
    }
    return done;
  }

  void wait(Nanos timeout) noexcept override { signal_->wait(timeout); }
  void wake() noexcept override { signal_->wake(); }
  size_t endpoint_count() const noexcept override { return endpoints_.size(); }

  Endpoint* add(memory::PipeEnd& end, Handler& handler, PipeEndpoint::Options options) {
    endpoints_.push_back(std::make_unique<PipeEndpoint>(end, handler, std::move(options), signal_));
    signal_->notify();
    return endpoints_.back().get();
  }

 private:
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::vector<std::unique_ptr<PipeEndpoint>> endpoints_;
};

}  // namespace

std::unique_ptr<Context> Network::make_context() {
  return std::make_unique<InprocContext>();
}

std::pair<Endpoint*, Endpoint*> Network::connect(Context& a, Handler& handler_a, Context& b,
                                                 Handler& handler_b, const EndpointOptions& options) {
  auto& context_a = static_cast<InprocContext&>(a);
  auto& context_b = static_cast<InprocContext&>(b);
  const auto [end_a, end_b] = memory::make_pipe_ends();
  const PipeEndpoint::Options of_both{
      .endpoint = options, .peer = "inproc " + std::to_string(connections_++), .is_in_memory = false};
  return {context_a.add(*end_a, handler_a, of_both), context_b.add(*end_b, handler_b, of_both)};
}

}  // namespace sluice::transport::inproc
