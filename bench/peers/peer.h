// Class Peer is the interface to a library in a benchmark driver: the measured collectives, and a barrier and
// a gather for the driver itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::bench {

// What a driver measures. kBoth is what a step of FSDP2 does: the gradients of a layer are reduced and
// scattered beside the gather of another layer's parameters.
enum class Collective : uint8_t { kAllreduce, kReduceScatter, kAllGather, kBoth };

class Peer {
 public:
  Peer() = default;
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] virtual std::string library() const = 0;    // name and version
  [[nodiscard]] virtual std::string algorithm() const = 0;  // empty: chosen by the library
  [[nodiscard]] virtual uint32_t rank() const = 0;
  [[nodiscard]] virtual uint32_t ranks() const = 0;

  // Writes the sum of `count` floats of all ranks to `out` on every rank.
  virtual void allreduce(const float* in, float* out, size_t count) = 0;
  // Writes the sum of all ranks' `ranks() * part` floats to `out`, of which this rank gets its part.
  virtual void reduce_scatter(const float* in, float* out, size_t part) = 0;
  // Writes the `part` floats of each rank to `out`, in the order of the ranks.
  virtual void all_gather(const float* in, float* out, size_t part) = 0;
  // Both at once, in separate buffers.
  virtual void reduce_scatter_and_all_gather(const float* gradients, float* own_gradients,
                                             const float* own_parameters, float* parameters, size_t part) = 0;
  // Returns true when the algorithm has only one buffer for sums: it ignores `in` and reduces the data in
  // `out`.
  [[nodiscard]] virtual bool is_in_place(Collective /*collective*/) const { return false; }
  virtual void barrier() = 0;
  // Returns the values of all ranks, one rank after another, on rank 0, and nothing on other ranks. All ranks
  // pass the same number of values.
  [[nodiscard]] virtual std::vector<double> gather(const std::vector<double>& values) = 0;
  // Shuts the library down; collective, and not called after a failure. `code`: exit code of this rank.
  virtual void shut_down(int code) = 0;
};

}  // namespace sluice::bench
