#include "transport/fault/fault_context.h"

#include <algorithm>
#include <utility>

#include "transport/fault/fault_endpoint.h"

namespace sluice::transport::fault {
namespace {

class PlannedFaults final : public FaultContext {
 public:
  PlannedFaults(std::unique_ptr<Context> below, FaultPlan plan)
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
    done += advance(now);  // room made below, clocks of what the callbacks have put
    std::erase_if(endpoints_, [](const auto& ep) { return ep->dead(); });
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
    return static_cast<size_t>(
        std::ranges::count_if(endpoints_, [](const auto& ep) { return ep->bound() && !ep->dead(); }));
  }

  const FaultCounters& faults() const noexcept override { return faults_; }

 private:
  unsigned advance(Nanos now) noexcept {
    unsigned done = 0;
    // By index: a callback may wrap another endpoint.
    for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->advance(now);
    return done;
  }

  const FaultPlan plan_;
  FaultCounters faults_;
  uint32_t wrapped_ = 0;
  std::vector<std::unique_ptr<FaultEndpoint>> endpoints_;
  const std::unique_ptr<Context> below_;  // last: goes first, while its handlers are there
};

}  // namespace

std::unique_ptr<FaultContext> make_context(std::unique_ptr<Context> below, FaultPlan plan) {
  return std::make_unique<PlannedFaults>(std::move(below), std::move(plan));
}

}  // namespace sluice::transport::fault
