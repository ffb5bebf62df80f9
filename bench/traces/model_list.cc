#include "bench/traces/model_list.h"

#include <fmt/format.h>

#include "bench/traces/buckets.h"
#include "config/sizes.h"

namespace sluice::bench {

std::string model_list(uint64_t element_bytes) {
  std::string text = fmt::format("{:<18} {:>11} {:>11} {:>8} {:>12} {:>12} {:>16} {:>15}  {}\n", "model",
                                 "parameters", "trained", "tensors", "bytes", "DDP buckets",
                                 "Horovod buckets", "step (assumed)", "batch (assumed)");
  for (const Model& model : all_models()) {
    const Nanos step = assumed_step_time(model);
    const std::vector<Gradient> gradients = gradients_of(model, step);
    text += fmt::format("{:<18} {:>11} {:>11} {:>8} {:>12} {:>12} {:>16} {:>15}  {} x {}\n", model.name,
                        model.parameters(), model.gradient_elements(), model.gradient_tensors(),
                        element_bytes * model.gradient_elements(),
                        ddp_buckets(gradients, element_bytes, {}).size(),
                        horovod_buckets(gradients, element_bytes, {}).size(), config::duration_text(step),
                        model.batch, model.sample);
  }
  return text;
}

}  // namespace sluice::bench
