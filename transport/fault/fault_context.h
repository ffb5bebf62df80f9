// Faults in front of any transport: the layer above sees an ordinary Context whose frames are delayed,
// corrupted, cut or stalled as a seeded plan says. Same seed, same puts, same faults. With an empty plan it
// must be indistinguishable from what it wraps: the conformance suite runs over it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace sluice::transport::fault {

enum class FaultKind : uint8_t {
  kDrop,     // the connection is closed in order after the frame before this one
  kReset,    // the connection breaks: frames in flight are lost
  kDelay,    // this frame and those behind it are held back for `duration`
  kCorrupt,  // one bit of the payload is flipped on the way (seeded place); the sender's buffer is left alone
  kStall,    // nothing is received or sent on this endpoint for `duration`
};

// Hits the `nth` put (counted from 0) of the `endpoint`-th wrapped endpoint (counted from 0 in order of
// wrapping), or, with probability > 0, each put of every endpoint with that probability.
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

class FaultContext : public Context {
 public:
  // The handler to give to the wrapped context when an endpoint is made there; it stands for `above`. Then
  // call bind() with the endpoint that was made; use what bind() returns in place of it.
  [[nodiscard]] virtual Handler& wrap(Handler& above) = 0;
  [[nodiscard]] virtual Endpoint* bind(Handler& wrapped, Endpoint* below, const EndpointOptions& options) = 0;
  [[nodiscard]] virtual const FaultCounters& faults() const noexcept = 0;
};

// Owns `below`.
[[nodiscard]] std::unique_ptr<FaultContext> make_context(std::unique_ptr<Context> below, FaultPlan plan);

}  // namespace sluice::transport::fault
