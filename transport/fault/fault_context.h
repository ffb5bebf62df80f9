// Fault injection for any transport, for tests. A FaultContext wraps another Context and delays, corrupts,
// drops or stalls its frames as a seeded plan says. The same seed and the same puts give the same faults.
// With an empty plan it must behave exactly like the wrapped context: the conformance suite runs over it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace sluice::transport::fault {

enum class FaultKind : uint8_t {
  kDrop,     // closes the connection in order after the previous frame
  kReset,    // breaks the connection; frames in flight are lost
  kDelay,    // delays this frame and all later ones by `duration`
  kCorrupt,  // flips one bit of a copy of the payload; the seed selects the bit
  kStall,    // the endpoint receives and sends nothing for `duration`
};

// With probability 0, the rule applies to put number `nth` of wrapped endpoint number `endpoint`; both count
// from 0, and endpoints count in the order of wrap(). Otherwise it applies to each put of every endpoint with
// that probability.
struct FaultRule {
  FaultKind kind = FaultKind::kDelay;
  uint32_t endpoint = 0;
  uint64_t nth = 0;
  double probability = 0;
  Nanos duration = 0;
};

struct FaultPlan {
  uint64_t seed = 1;
  std::vector<FaultRule> rules;
};

struct FaultCounters {
  uint64_t drops = 0, resets = 0, delays = 0, corruptions = 0, stalls = 0;
};

// FaultContext is a Context that injects faults. To add an endpoint, pass wrap(handler) as the handler of a
// new endpoint of the wrapped context, then call bind() with that endpoint and use the endpoint that bind()
// returns.
class FaultContext : public Context {
 public:
  [[nodiscard]] virtual Handler& wrap(Handler& above) = 0;
  [[nodiscard]] virtual Endpoint* bind(Handler& wrapped, Endpoint* below, const EndpointOptions& options) = 0;
  [[nodiscard]] virtual const FaultCounters& faults() const noexcept = 0;
};

// The result owns `below`.
[[nodiscard]] std::unique_ptr<FaultContext> make_context(std::unique_ptr<Context> below, FaultPlan plan);

}  // namespace sluice::transport::fault
