// Fault injection for any transport, for tests. A FaultContext wraps another Context and delays, corrupts,
// drops or stalls its frames as a seeded plan says. The same seed and the same puts give the same faults.
// With an empty plan it must behave exactly like the wrapped context: the conformance suite runs over it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/transport/fault_endpoint.h"
#include "transport/transport.h"

namespace sluice::transport::fault {

// FaultContext is a Context that injects faults. To add an endpoint, pass wrap(handler) as the handler of a
// new endpoint of the wrapped context, then call bind() with it and use the endpoint that bind() returns.
class FaultContext final : public Context {
 public:
  FaultContext(std::unique_ptr<Context> below, FaultPlan plan)
      : plan_(std::move(plan)), below_(std::move(below)) {}

  [[nodiscard]] Handler& wrap(Handler& above);
  [[nodiscard]] Endpoint* bind(Handler& wrapped, Endpoint* below, const EndpointOptions& options);
  [[nodiscard]] const FaultCounters& faults() const noexcept { return faults_; }

  unsigned poll(Nanos now, size_t budget_bytes) noexcept override;
  void wait(Nanos timeout) noexcept override;
  void wake() noexcept override { below_->wake(); }
  size_t endpoint_count() const noexcept override;

 private:
  unsigned advance(Nanos now) noexcept;

  const FaultPlan plan_;
  FaultCounters faults_;
  uint32_t wrapped_ = 0;
  std::vector<std::unique_ptr<FaultEndpoint>> endpoints_;
  const std::unique_ptr<Context> below_;  // last member: destroyed first, while its handlers still exist
};

}  // namespace sluice::transport::fault
