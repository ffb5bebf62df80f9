#include "bench/e2e/soak/soak_plan.h"

#include <algorithm>
#include <array>
#include <bit>

namespace sluice::bench {

SoakPlan::SoakPlan(uint64_t seed, uint32_t open, uint64_t max_bytes)
    : random_(seed), open_(open), max_bytes_(max_bytes) {}

uint64_t SoakPlan::below(uint64_t bound) {
  return random_() % bound;
}

SoakOperation SoakPlan::draw() {
  SoakOperation o;
  o.dtype = static_cast<wire::DType>(below(wire::kPlainDTypeCount));
  o.op = static_cast<wire::Op>(below(wire::kOpCount));
  const uint64_t magnitude = below(static_cast<uint64_t>(std::bit_width(max_bytes_)) + 1);
  const uint64_t bytes =
      magnitude == 0 ? 0 : (uint64_t{1} << (magnitude - 1)) + below(uint64_t{1} << (magnitude - 1));
  o.count = std::min(bytes, max_bytes_) / wire::size_of(o.dtype);
  o.offset = below(kSoakOffsets);
  o.in_place = below(2) == 1;
  o.seed = random_();
  constexpr std::array kMethods = {SoakMethod::kAllreduce, SoakMethod::kAllreduce,
                                   SoakMethod::kReduceScatterAllGather, SoakMethod::kReduceBroadcast};
  o.method = kMethods[below(kMethods.size())];
  return o;
}

std::vector<SoakOperation> SoakPlan::next_round() {
  std::vector<SoakOperation> round(1 + below(open_));
  for (SoakOperation& o : round) o = draw();
  return round;
}

}  // namespace sluice::bench
