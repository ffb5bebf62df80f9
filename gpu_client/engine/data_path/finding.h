// What reducers find wrong with the contributions to an operation (protocol.md section 3, FINDING), and class
// FindingSum, which merges the findings of an operation's chunks, or of the parts of a larger operation.
//
// A rank has sick values if any part has them, but it counts as all zero only if every part says so: a chunk
// of zeros alone is ordinary.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "core/ids.h"
#include "wire/extension.h"

namespace sluice::engine {

struct OperationFinding {
  wire::FindingKind kind = wire::FindingKind::kNonFinite;
  Rank rank = 0;
  uint64_t count = 0;  // of kNonFinite: NaNs and infinities
  float ratio = 0;     // of kOutlier: the largest magnitude over the median of the ranks'
};

class FindingSum {
 public:
  void add(const OperationFinding& part) noexcept {
    if (part.kind == wire::FindingKind::kZeros) {
      if (zero_parts_ == 0) zero_rank_ = part.rank;
      if (part.rank == zero_rank_) ++zero_parts_;
      return;
    }
    const bool is_worse =
        !worst_ || part.kind < worst_->kind || (part.kind == worst_->kind && part.rank < worst_->rank);
    if (is_worse) {
      worst_ = part;
    } else if (part.kind == worst_->kind && part.rank == worst_->rank) {
      worst_->count += part.count;
      worst_->ratio = std::max(worst_->ratio, part.ratio);
    }
  }
  void add(const wire::Finding& chunk) noexcept {
    OperationFinding part{.kind = chunk.kind, .rank = chunk.rank};
    if (chunk.kind == wire::FindingKind::kNonFinite) part.count = chunk.value;
    if (chunk.kind == wire::FindingKind::kOutlier) part.ratio = std::bit_cast<float>(chunk.value);
    add(part);
  }
  // The finding of an operation of `parts` parts.
  [[nodiscard]] std::optional<OperationFinding> result(uint64_t parts) const noexcept {
    if (worst_ || zero_parts_ == 0 || zero_parts_ < parts) return worst_;
    return OperationFinding{.kind = wire::FindingKind::kZeros, .rank = zero_rank_};
  }

 private:
  std::optional<OperationFinding> worst_;
  uint64_t zero_parts_ = 0;
  Rank zero_rank_ = 0;
};

}  // namespace sluice::engine
