// sluice_stream_options as the pipeline wants them, checked.
#pragma once

#include "core/result.h"
#include "gpu_client/include/sluice/streams.h"
#include "gpu_client/pipeline/streams.h"

namespace sluice::api {

[[nodiscard]] sluice_stream_options default_stream_options() noexcept;

struct StreamSetting {
  sluice_device_kind kind = SLUICE_DEVICE_HOST;
  int device = -1;
  pipeline::StreamsOptions streams;
};
// kInvalidArgument names the option and the value; kUnsupported: options of a newer version.
[[nodiscard]] Result<StreamSetting> read_stream_options(const sluice_stream_options& given);

}  // namespace sluice::api
