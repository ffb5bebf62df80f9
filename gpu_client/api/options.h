// Validates sluice_options and sluice_stream_options, and converts them for the engine and the pipeline.
#pragma once

#include "core/result.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/include/sluice/sluice.h"
#include "gpu_client/include/sluice/streams.h"
#include "gpu_client/pipeline/streams.h"

namespace sluice::api {

// Returns the defaults, overridden by the variables of docs/reference/configuration.md. Ignores a malformed
// variable, because it cannot return an error; read_options() reports it.
[[nodiscard]] sluice_options default_options() noexcept;

// Returns kInvalidArgument with the option's name and value, or kSystem if a key or token file cannot be
// read.
[[nodiscard]] Result<engine::SessionOptions> read_options(const sluice_options& options);

// True when all ranks run on one host: there are neither reducers nor a place where several hosts could meet.
[[nodiscard]] bool is_on_one_host(const engine::SessionOptions& options) noexcept;

[[nodiscard]] sluice_stream_options default_stream_options() noexcept;

struct StreamSettings {
  sluice_device_kind kind = SLUICE_DEVICE_HOST;
  int device = -1;
  bool wire_strict = false;  // refuse a block type that a reducer does not support, instead of bf16
  pipeline::StreamsOptions streams;
};
// Returns kInvalidArgument with the option's name and value, or kUnsupported for options of a newer version.
[[nodiscard]] Result<StreamSettings> read_stream_options(const sluice_stream_options& caller_options);

}  // namespace sluice::api
