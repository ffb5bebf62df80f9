// Struct LinkMatrix holds the bandwidth between each worker and each reducer; slow_links() attributes slow
// pairs to hosts.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace sluice::bench {

struct LinkMatrix {
  size_t workers = 0;
  size_t reducers = 0;
  std::vector<double> gb_per_second;  // of worker w and reducer r: index w * reducers + r

  [[nodiscard]] double at(size_t w, size_t r) const { return gb_per_second[w * reducers + r]; }
  // Returns the upper median, because the lower one of two workers may be the slow one. Returns 0 for an
  // empty matrix.
  [[nodiscard]] double median() const;
};

// Returns `concurrent`, the bandwidth of a worker while all workers are active, divided by the lowest value
// of `alone`. About 1: the links of the workers limit an allreduce. Less: the pool limits it. 0 when `alone`
// is empty.
[[nodiscard]] double coverage_of(const std::vector<double>& alone, double concurrent);

// A slow worker, a slow reducer, or a slow path between both (both are set).
struct SlowLink {
  std::optional<size_t> worker = {};
  std::optional<size_t> reducer = {};
  double gb_per_second = 0;  // of the fastest pair
};

// Returns the hosts and pairs below `threshold` times the median. The link of a host is slow when all its
// pairs are slow. Slow pairs of hosts whose links are not slow are listed separately. Order: workers,
// reducers, pairs.
[[nodiscard]] std::vector<SlowLink> slow_links(const LinkMatrix& matrix, double threshold);

}  // namespace sluice::bench
