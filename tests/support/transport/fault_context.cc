#include "tests/support/transport/fault_context.h"

#include <algorithm>

namespace sluice::transport::fault {

Handler& FaultContext::wrap(Handler& above) {
  endpoints_.push_back(std::make_unique<FaultEndpoint>(above, plan_, wrapped_++, faults_));
  return *endpoints_.back();
}

Endpoint* FaultContext::bind(Handler& wrapped, Endpoint* below, const EndpointOptions& options) {
  auto& endpoint = static_cast<FaultEndpoint&>(wrapped);
  endpoint.bind(*below, options);
  return &endpoint;
}

unsigned FaultContext::poll(Nanos now, size_t budget_bytes) noexcept {
  unsigned done = advance(now);
  done += below_->poll(now, budget_bytes);
  done += advance(now);  // uses queue space freed below, and starts the clocks of frames that callbacks put
  std::erase_if(endpoints_, [](const auto& ep) { return ep->is_finished(); });
  return done;
}

void FaultContext::wait(Nanos timeout) noexcept {
  for (const auto& ep : endpoints_) {
    if (const auto due = ep->next_due(); due && (timeout < 0 || *due < timeout)) timeout = *due;
  }
  below_->wait(timeout);
}

size_t FaultContext::endpoint_count() const noexcept {
  const auto is_open = [](const auto& ep) { return ep->is_bound() && !ep->is_finished(); };
  return static_cast<size_t>(std::ranges::count_if(endpoints_, is_open));
}

unsigned FaultContext::advance(Nanos now) noexcept {
  unsigned done = 0;
  // Uses an index, because a callback may wrap another endpoint.
  for (size_t i = 0; i < endpoints_.size(); ++i) done += endpoints_[i]->advance(now);
  return done;
}

}  // namespace sluice::transport::fault
