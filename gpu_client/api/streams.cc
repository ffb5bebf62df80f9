// Implements the C API of include/sluice/streams.h: validates arguments and calls the pipeline.
#include "gpu_client/include/sluice/streams.h"

#include <memory>
#include <string>
#include <utility>

#include "gpu_client/api/caller_buffers.h"
#include "gpu_client/api/options.h"
#include "gpu_client/api/request.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#include "gpu_client/api/stream_call.h"
#ifdef SLUICE_HAVE_CUDA
#include "gpu_client/cuda/cuda_device.h"
#endif
#include "gpu_client/host/host_device.h"
#include "gpu_client/host/host_stream.h"

using sluice::Errc;
using sluice::Result;
using sluice::api::call_on_streams;
using sluice::api::copy_sized;
using sluice::api::copy_text;
using sluice::api::is_owned_by_this_process;
using sluice::api::kForkedText;
using sluice::api::refuse;
using sluice::api::return_request;
using sluice::api::run_guarded;
using sluice::api::submit_on_stream;
using sluice::host::HostStream;
using sluice::pipeline::Streams;

namespace {

// Calls body(host stream), or refuses if there is no such stream.
template <typename Body>
sluice_status call_on_host_stream(sluice_stream stream, Body&& body) noexcept {
  return run_guarded([&] {
    if (!HostStream::is_live(stream))
      return refuse(SLUICE_INVALID_ARGUMENT, "stream is not a live host stream");
    body(static_cast<HostStream*>(stream));
    return SLUICE_OK;
  });
}

Result<std::unique_ptr<sluice::pipeline::Device>> open_device(sluice_device_kind kind, int ordinal) {
  if (kind == SLUICE_DEVICE_HOST) return sluice::host::open_host_device();
#ifdef SLUICE_HAVE_CUDA
  return sluice::cuda::open_cuda_device(ordinal);
#else
  static_cast<void>(ordinal);
  return sluice::fail(Errc::kUnsupported, "this library was built without CUDA");
#endif
}

Result<void> open_streams(sluice_session& session, const sluice_stream_options& options) {
  const std::lock_guard lock(session.open_streams_mutex);
  if (session.streams) return sluice::fail(Errc::kInvalidArgument, "the session already has streams");
  if (session.has_operations.load(std::memory_order_relaxed)) {
    return sluice::fail(Errc::kInvalidArgument,
                        "the session has already had operations; open its streams before the first one");
  }
  auto settings = sluice::api::read_stream_options(options);
  if (!settings) return tl::unexpected(settings.error());
  if (sluice::pipeline::is_block(settings->streams.cast) && !session.engine->accepts_blocks()) {
    std::string reason = "a reducer is of a release without 8-bit block types";
    if (settings->wire_strict) return sluice::fail(Errc::kUnsupported, std::move(reason));
    session.engine->log().warn(reason += "; f32 travels as bf16 instead");
    settings->streams.cast = sluice::pipeline::WireCast::kBf16;
  }
  auto device = open_device(settings->kind, settings->device);
  if (!device) return tl::unexpected(device.error());
  auto streams = Streams::open(*session.engine, std::move(*device), settings->streams);
  if (!streams) return tl::unexpected(streams.error());
  session.streams = std::move(*streams);
  session.published_streams.store(session.streams.get(), std::memory_order_release);
  return {};
}

}  // namespace

const char* sluice_refusal(void) {
  return sluice::api::refusal_text();
}

void sluice_stream_options_init_sized(sluice_stream_options* options, size_t size) {
  if (options == nullptr || size < sizeof options->struct_size) return;
  sluice_stream_options defaults = sluice::api::default_stream_options();
  defaults.struct_size = size;
  copy_sized(defaults, options, size);
}

sluice_status sluice_session_open_streams(sluice_session* session, const sluice_stream_options* options,
                                          char* error, size_t error_size) {
  copy_text("", error, error_size);
  const auto open = [&] {
    if (session == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "session is NULL");
    if (!is_owned_by_this_process(session)) return refuse(SLUICE_CLOSED, kForkedText);
    // By reference: a struct of a newer version is longer than this library's.
    const sluice_stream_options defaults = sluice::api::default_stream_options();
    const auto opened = open_streams(*session, options != nullptr ? *options : defaults);
    return opened ? SLUICE_OK : refuse(opened.error());
  };
  const sluice_status status = run_guarded(open);
  if (status != SLUICE_OK) copy_text(sluice_refusal(), error, error_size);
  return status;
}

sluice_status sluice_allreduce_on_stream(sluice_session* session, const void* send, void* recv, size_t count,
                                         sluice_dtype dtype, sluice_op op, sluice_stream stream,
                                         sluice_request* request) {
  return sluice_allreduce_residual_on_stream(session, send, recv, count, dtype, op, nullptr, stream, request);
}

sluice_status sluice_allreduce_residual_on_stream(sluice_session* session, const void* send, void* recv,
                                                  size_t count, sluice_dtype dtype, sluice_op op,
                                                  float* residual, sluice_stream stream,
                                                  sluice_request* request) {
  const auto read = [&](sluice::engine::OpRequest& r) {
    return sluice::api::read_request(send, recv, count, dtype, op, r);
  };
  return submit_on_stream(session, read, residual, stream, request);
}

sluice_status sluice_group_begin(sluice_session* session) {
  return call_on_streams(session, [&](Streams& streams) {
    const auto begun = streams.begin_group();
    return begun ? SLUICE_OK : refuse(begun.error());
  });
}

sluice_status sluice_group_end(sluice_session* session, sluice_request* request) {
  if (request != nullptr) *request = 0;
  return call_on_streams(session, [&](Streams& streams) {
    return return_request(streams.end_group(request != nullptr), request);
  });
}

sluice_status sluice_session_stream_stats(sluice_session* session, sluice_stream_stats* stats) {
  if (stats == nullptr || stats->struct_size < sizeof stats->struct_size)
    return refuse(SLUICE_INVALID_ARGUMENT, "stats is NULL or its struct_size is not set");
  return call_on_streams(session, [&](Streams& streams) {
    const auto counters = streams.stats();
    if (!counters) return refuse(counters.error());
    sluice_stream_stats out{};
    out.struct_size = stats->struct_size;
    out.operations = counters->completed.operations;
    out.rounds = counters->batches;
    out.pieces = counters->completed.segments;
    out.bytes_staged_out = counters->bytes_staged_out;
    out.bytes_staged_in = counters->bytes_staged_in;
    out.pinned_bytes = counters->pinned_bytes;
    out.elements_cast = counters->elements_cast;
    out.cast_error_squares = counters->error.error_squares;
    out.cast_value_squares = counters->error.value_squares;
    copy_sized(out, stats, out.struct_size);
    return SLUICE_OK;
  });
}

sluice_status sluice_host_stream_create(sluice_stream* stream) {
  if (stream == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "stream is NULL");
  *stream = nullptr;
  return run_guarded([&] {
    auto started = HostStream::start();
    if (!started) return refuse(started.error());
    *stream = started->release();
    return SLUICE_OK;
  });
}

sluice_status sluice_host_stream_submit(sluice_stream stream, void (*work)(void* argument), void* argument) {
  if (work == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "work is NULL");
  return call_on_host_stream(stream, [&](HostStream* s) { s->submit([work, argument] { work(argument); }); });
}

sluice_status sluice_host_stream_synchronize(sluice_stream stream) {
  return call_on_host_stream(stream, [](HostStream* s) { s->synchronize(); });
}

sluice_status sluice_host_stream_destroy(sluice_stream stream) {
  if (stream == nullptr) return SLUICE_OK;
  return call_on_host_stream(stream, [](HostStream* s) { delete s; });
}
