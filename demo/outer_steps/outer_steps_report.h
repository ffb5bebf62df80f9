// Class OuterStepsReport prints the progress and the result of `sluice demo outer-steps`, in rank 0.
#pragma once

#include <cstdint>
#include <string>

#include "core/units.h"
#include "demo/digits/network.h"
#include "demo/outer_steps/outer_steps.h"

namespace sluice::demo {

struct OuterStepsResult {
  bool identical = false;
  uint64_t hash = 0;          // of the weights
  uint64_t version = 0;       // of the model
  uint64_t island_bytes = 0;  // that a worker sent inside its island: the most of all workers
};

class OuterStepsReport {
 public:
  // `inner_steps` are those of each island. The arguments must outlive this object.
  OuterStepsReport(const OuterStepsOptions& options, const Dataset& held_out, uint64_t inner_steps);

  void print_header(const bench::WorkerOptions& worker, size_t island_images, size_t parameters) const;
  // Call both around each outer step.
  void before_outer_step(Network& network);
  void after_outer_step(Network& network, uint64_t version);
  // Prints the result and writes the JSON file.
  void finish(const OuterStepsResult& result, size_t parameters) const;
  [[nodiscard]] bool is_accurate() const noexcept { return accuracy_ >= options_.min_accuracy; }

 private:
  [[nodiscard]] double accuracy_of(Network& network) const;
  [[nodiscard]] bool is_printed(uint64_t outer_step) const noexcept;

  const OuterStepsOptions& options_;
  const Dataset& held_out_;
  const uint64_t inner_steps_;
  const uint64_t outer_steps_;
  const Nanos begin_;
  uint64_t done_ = 0;           // outer steps
  double island_accuracy_ = 0;  // of island 0 before the last outer step that was printed
  double accuracy_ = 0;
  double seconds_ = 0;
};

}  // namespace sluice::demo
