#include "reducer/lane/health_monitor.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "wire/dtype.h"

namespace sluice::reducer {
namespace {

using kernels::HealthStats;

// Sums and averages only: the smallest value of a rank says nothing about that of another one.
bool compares_ranks(const wire::FrameHeader& header, uint32_t ranks, uint64_t values) noexcept {
  const bool adds = header.op == wire::Op::kSum || header.op == wire::Op::kAvg;
  return adds && ranks >= 2 && values >= HealthMonitor::kMinCompared;
}

uint32_t saturated(uint64_t count) noexcept {
  return static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
}

}  // namespace

HealthMonitor::HealthMonitor(uint32_t ranks, uint32_t slots)
    : ranks_(ranks), stats_(size_t{ranks} * slots), sorted_(ranks), published_(ranks) {}

void HealthMonitor::scan(kernels::ScanFunction function, uint32_t slot, Rank first_rank,
                         std::span<const std::byte* const> sources, size_t first, size_t count) noexcept {
  HealthStats* stats = &stats_[size_t{slot} * ranks_ + first_rank];
  for (const std::byte* source : sources) {
    if (first == 0) *stats = {};
    function(source, first, count, *stats++);
  }
}

// Of an even number the lower one, so that a rank never is an outlier against itself.
double HealthMonitor::median_of_largest(std::span<const HealthStats> chunk) noexcept {
  std::ranges::transform(chunk, sorted_.begin(), &HealthStats::largest);
  const auto middle = sorted_.begin() + (ranks_ - 1) / 2;
  std::ranges::nth_element(sorted_, middle);
  return *middle;
}

std::optional<wire::Finding> HealthMonitor::judge(uint32_t slot, const wire::FrameHeader& header,
                                                  FindingCounters& findings) noexcept {
  const std::span<const HealthStats> chunk(&stats_[size_t{slot} * ranks_], ranks_);
  const uint64_t values = uint64_t{header.length} / wire::size_of(header.wire_dtype) *
                          (wire::is_block(header.wire_dtype) ? 256 : 1);
  publish(chunk, header.op_id, values);
  const bool compared = compares_ranks(header, ranks_, values);
  const double median = compared ? median_of_largest(chunk) : 0;
  const auto zero_ranks = static_cast<uint64_t>(std::ranges::count_if(chunk, &HealthStats::all_zero));
  const bool most_have_values = zero_ranks < ranks_ && (2 * zero_ranks < ranks_ || ranks_ == 2);
  const double limit = median * (ranks_ == 2 ? kOutlierRatioOfTwo : kOutlierRatio);
  std::optional<wire::Finding> worst;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    const HealthStats& s = chunk[rank];
    wire::Finding finding{.rank = static_cast<uint16_t>(rank)};
    if (s.non_finite != 0) {
      finding.kind = wire::FindingKind::kNonFinite;
      finding.value = saturated(s.non_finite);
    } else if (median > 0 && s.largest > limit) {
      finding.kind = wire::FindingKind::kOutlier;
      const double largest = std::numeric_limits<float>::max();
      finding.value = std::bit_cast<uint32_t>(static_cast<float>(std::min(s.largest / median, largest)));
    } else if (compared && most_have_values && s.all_zero()) {
      finding.kind = wire::FindingKind::kZeros;
    } else {
      continue;
    }
    of_kind(published_[rank].findings, finding.kind).add(1);
    if (!worst || finding.kind < worst->kind) worst = finding;
  }
  if (worst) of_kind(findings, worst->kind).add(1);
  return worst;
}

void HealthMonitor::publish(std::span<const HealthStats> chunk, uint32_t op_id, uint64_t values) noexcept {
  const bool continues = op_id == op_id_;
  op_id_ = op_id;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    const HealthStats& s = chunk[rank];
    RankHealth& h = published_[rank];
    h.non_finite.add(s.non_finite);
    h.largest.set(continues ? std::max(h.largest.get(), s.largest) : s.largest);
    h.square_sum.set((continues ? h.square_sum.get() : 0) + s.square_sum);
    h.values.set((continues ? h.values.get() : 0) + values);
    h.sampled.set((continues ? h.sampled.get() : 0) + s.sampled);
    h.zeros.set((continues ? h.zeros.get() : 0) + s.zeros);
  }
}

}  // namespace sluice::reducer
