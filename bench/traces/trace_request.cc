#include "bench/traces/trace_request.h"

#include <fmt/format.h>

#include "config/sizes.h"

namespace sluice::bench {
namespace {

using config::duration_text;
using config::size_text;

std::string step_text(const Model& model, Nanos step, bool assumed) {
  const std::string text = fmt::format("step: {}, including the forward pass, ", duration_text(step));
  if (!assumed) return text + "set by the user";
  return text + fmt::format("assumed: {} samples ({}) at {:.0f} TFLOP/s", model.batch, model.sample,
                            kAssumedFlopsPerSecond * 1e-12);
}

std::string bucketing_text(const TraceRequest& request) {
  switch (request.bucketing) {
    case Bucketing::kDdp:
      return fmt::format("buckets: like PyTorch DDP, first {}, then {}", size_text(request.ddp.first_cap),
                         size_text(request.ddp.cap));
    case Bucketing::kHorovod:
      return fmt::format("buckets: like Horovod, cycle {}, threshold {}",
                         duration_text(request.horovod.cycle), size_text(request.horovod.threshold));
    case Bucketing::kNone: break;
  }
  return "buckets: none, one operation per gradient";
}

std::vector<Bucket> buckets_of(const TraceRequest& request, const std::vector<Gradient>& gradients) {
  switch (request.bucketing) {
    case Bucketing::kDdp: return ddp_buckets(gradients, request.element_bytes, request.ddp);
    case Bucketing::kHorovod: return horovod_buckets(gradients, request.element_bytes, request.horovod);
    case Bucketing::kNone: break;
  }
  return single_buckets(gradients, request.element_bytes);
}

Result<Trace> model_trace(const TraceRequest& request) {
  const auto model = find_model(request.model);
  if (!model) return tl::unexpected(model.error());
  const Nanos step = request.step != 0 ? request.step : assumed_step_time(*model);
  return Trace{.comments = {fmt::format("model: {}, {}; {}", model->name, model->source, model->heads),
                            fmt::format("gradients: {} of {} parameters in {} tensors, {} B per element",
                                        model->gradient_elements(), model->parameters(),
                                        model->gradient_tensors(), request.element_bytes),
                            step_text(*model, step, request.step == 0), bucketing_text(request)},
               .buckets = buckets_of(request, gradients_of(*model, step))};
}

}  // namespace

Result<Trace> trace_of(const TraceRequest& request) {
  auto trace = request.file.empty() ? model_trace(request) : read_trace(request.file, request.element_bytes);
  if (!trace) return trace;
  if (request.compute_scale == 1) return trace;
  if (request.compute_scale * static_cast<double>(trace->compute_us()) > static_cast<double>(kMaxReadyUs)) {
    return fail(Errc::kInvalidArgument,
                fmt::format("--compute-scale {} makes the step longer than 24 h", request.compute_scale));
  }
  trace->comments.push_back(fmt::format("times: multiplied by {}", request.compute_scale));
  return scale_times(std::move(*trace), request.compute_scale);
}

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
