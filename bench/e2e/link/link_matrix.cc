#include "bench/e2e/link/link_matrix.h"

#include <algorithm>

namespace sluice::bench {

double LinkMatrix::median() const {
  if (gb_per_second.empty()) return 0;
  std::vector<double> sorted = gb_per_second;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

double coverage_of(const std::vector<double>& alone, double concurrent) {
  if (alone.empty() || std::ranges::min(alone) <= 0) return 0;
  return concurrent / std::ranges::min(alone);
}

std::vector<SlowLink> slow_links(const LinkMatrix& matrix, double threshold) {
  const double limit = threshold * matrix.median();
  std::vector<double> best_of_worker(matrix.workers, 0);
  std::vector<double> best_of_reducer(matrix.reducers, 0);
  for (size_t w = 0; w < matrix.workers; ++w) {
    for (size_t r = 0; r < matrix.reducers; ++r) {
      best_of_worker[w] = std::max(best_of_worker[w], matrix.at(w, r));
      best_of_reducer[r] = std::max(best_of_reducer[r], matrix.at(w, r));
    }
  }
  std::vector<SlowLink> slow;
  for (size_t w = 0; w < matrix.workers; ++w) {
    if (best_of_worker[w] < limit) slow.push_back({.worker = w, .gb_per_second = best_of_worker[w]});
  }
  for (size_t r = 0; r < matrix.reducers; ++r) {
    if (best_of_reducer[r] < limit) slow.push_back({.reducer = r, .gb_per_second = best_of_reducer[r]});
  }
  for (size_t w = 0; w < matrix.workers; ++w) {
    for (size_t r = 0; r < matrix.reducers; ++r) {
      if (matrix.at(w, r) < limit && best_of_worker[w] >= limit && best_of_reducer[r] >= limit)
        slow.push_back({.worker = w, .reducer = r, .gb_per_second = matrix.at(w, r)});
    }
  }
  return slow;
}

}  // namespace sluice::bench
