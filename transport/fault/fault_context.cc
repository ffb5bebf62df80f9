#include "transport/fault/fault_context.h"

#include <algorithm>
#include <utility>

#include "transport/fault/fault_endpoint.h"

namespace sluice::transport::fault {
namespace {

class WrappingContext final : public FaultContext {
 public:
  WrappingContext(std::unique_ptr<Context> below, FaultPlan plan)
      : plan_(std::move(plan)), below_(std::move(below)) {}

  Handler& wrap(Handler& above) override {
    endpoints_.push_back(std::make_unique<FaultEndpoint>(above, plan_, wrapped_++, faults_));
    return *endpoints_.back();
  }

  Endpoint* bind(Handler& wrapped, Endpoint* below, const EndpointOptions& options) override {
    auto& endpoint = static_cast<FaultEndpoint&>(wrapped);
    endpoint.bind(*below, options);
    return &endpoint;
  }

  unsigned poll(Nanos now, size_t budget_bytes) noexcept override {
    unsigned done = advance(now);
    done += below_->poll(now, budget_bytes);
    done += advance(now);  // uses queue space freed below, and starts the clocks of frames that callbacks put
    std::erase_if(endpoints_, [](const auto& ep) { return ep->is_finished(); });
    return done;
  }

  void wait(Nanos timeout) noexcept override {
    for (const auto& ep : endpoints_) {
      if (const auto due = ep->next_due(); due && (timeout < 0 || *due < timeout)) timeout = *due;
    }
    below_->wait(timeout);
  }

  void wake() noexcept override { below_->wake(); }

  size_t endpoint_count() const noexcept override {
    const auto is_open = [](const auto& ep) { return ep->is_bound() && !ep->is_finished(); };
    return static_cast<size_t>(std::ranges::count_if(endpoints_, is_open));
  }

  const FaultCounters& faults() const noexcept override { return faults_; }

 private:
  unsigned advance(Nanos now) noexcept {
    unsigned done = 0;
    // Uses an index, because a callback may wrap another endpoint.
    for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->advance(now);
    return done;
  }

  const FaultPlan plan_;
  FaultCounters faults_;
  uint32_t wrapped_ = 0;
  std::vector<std::unique_ptr<FaultEndpoint>> endpoints_;
  const std::unique_ptr<Context> below_;  // last member: destroyed first, while its handlers still exist
};

}  // namespace

std::unique_ptr<FaultContext> make_context(std::unique_ptr<Context> below, FaultPlan plan) {
  return std::make_unique<WrappingContext>(std::move(below), std::move(plan));
}

}  // namespace sluice::transport::fault
