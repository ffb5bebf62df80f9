// How fast each worker reaches each reducer, and whose link it is when some do so slowly.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace sluice::bench {

struct LinkMatrix {
  size_t workers = 0;
  size_t reducers = 0;
  std::vector<double> gb_per_second;  // of worker w and reducer r at [w * reducers + r]

  [[nodiscard]] double at(size_t w, size_t r) const { return gb_per_second[w * reducers + r]; }
  // Of two in the middle the greater: of two workers one may be the slow one. 0 without any.
  [[nodiscard]] double median() const;
};

// What each worker gets with all at once, of what the slowest of them gets alone with all reducers: about 1
// where the workers' own links are the limit of an allreduce, less where the pool is. 0 without any.
[[nodiscard]] double coverage_of(const std::vector<double>& alone, double together);

// A worker, a reducer, or the way between one of each (both are set).
struct SlowLink {
  std::optional<size_t> worker = {};
  std::optional<size_t> reducer = {};
  double gb_per_second = 0;  // of its fastest pair
};

// Pairs below `part` of the median, told by whose they are. A host's link is slow when all its pairs are;
// pairs that no slow host explains are told one by one. Workers first.
[[nodiscard]] std::vector<SlowLink> slow_links(const LinkMatrix& matrix, double part);

}  // namespace sluice::bench
