// What a driver tells the part that all drivers share about its library: one allreduce, a barrier, and a way
// home for figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::bench {

class Peer {
 public:
  Peer() = default;
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] virtual std::string library() const = 0;    // and its version
  [[nodiscard]] virtual std::string algorithm() const = 0;  // empty: the library's choice
  [[nodiscard]] virtual uint32_t rank() const = 0;
  [[nodiscard]] virtual uint32_t ranks() const = 0;

  // Sums `count` floats of every rank into `out` at every rank.
  virtual void allreduce(const float* in, float* out, size_t count) = 0;
  // True for an algorithm that knows only one buffer: it ignores `in` and sums what is in `out`.
  [[nodiscard]] virtual bool in_place() const { return false; }
  virtual void barrier() = 0;
  // At rank 0 every rank's values, in order of rank; elsewhere nothing. All ranks give as many.
  [[nodiscard]] virtual std::vector<std::vector<double>> gather(const std::vector<double>& values) = 0;
  // Ends what the library has open, at all ranks together; not called after a failure. `code`: what this rank
  // will exit with.
  virtual void leave(int code) = 0;
};

}  // namespace sluice::bench
