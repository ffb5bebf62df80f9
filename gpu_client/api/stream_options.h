// Validates sluice_stream_options and converts them for the pipeline.
#pragma once

#include "core/result.h"
#include "gpu_client/include/sluice/streams.h"
#include "gpu_client/pipeline/streams.h"

namespace sluice::api {

[[nodiscard]] sluice_stream_options default_stream_options() noexcept;

struct StreamSettings {
  sluice_device_kind kind = SLUICE_DEVICE_HOST;
  int device = -1;
  pipeline::StreamsOptions streams;
};
// Returns kInvalidArgument with the option's name and value, or kUnsupported for options of a newer version.
[[nodiscard]] Result<StreamSettings> read_stream_options(const sluice_stream_options& caller_options);

}  // namespace sluice::api
