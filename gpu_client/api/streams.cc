// Implements the C API of include/sluice/streams.h: validates arguments and calls the pipeline.
#include "gpu_client/include/sluice/streams.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gpu_client/api/caller_buffers.h"
#include "gpu_client/api/options.h"
#include "gpu_client/api/request.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#ifdef SLUICE_HAVE_CUDA
#include "gpu_client/cuda/cuda_device.h"
#endif
#include "gpu_client/host/host_device.h"
#include "gpu_client/host/host_stream.h"

using sluice::Errc;
using sluice::Error;
using sluice::Result;
using sluice::api::catch_exceptions;
using sluice::api::copy_sized;
using sluice::api::copy_text;
using sluice::api::is_owned_by_this_process;
using sluice::api::kForkedText;
using sluice::api::to_status;
using sluice::host::HostStream;
using sluice::pipeline::Streams;

namespace {

// The text of sluice_refusal().
thread_local std::array<char, 512> refusal{};

// Sets the text of sluice_refusal() and returns `status`.
sluice_status refuse(sluice_status status, std::string_view reason) noexcept {
  copy_text(reason, refusal.data(), refusal.size());
  return status;
}
sluice_status refuse(const Error& error) noexcept {
  return refuse(to_status(error.code), error.text);
}

// Runs `body`. Converts an exception to a status and sets the text of sluice_refusal().
template <typename Body>
sluice_status run_guarded(Body&& body) noexcept {
  bool returned = false;
  const sluice_status status = catch_exceptions([&] {
    const sluice_status result = std::forward<Body>(body)();
    returned = true;
    return result;
  });
  if (returned) return status;
  return refuse(status, status == SLUICE_SYSTEM ? "out of memory" : "internal error");
}

// Calls body(streams), or refuses if the session has no streams.
template <typename Body>
sluice_status call_on_streams(const sluice_session* session, Body&& body) noexcept {
  if (session == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "session is NULL");
  if (!is_owned_by_this_process(session)) return refuse(SLUICE_CLOSED, kForkedText);
  Streams* const streams = session->streams_or_null();
  if (streams == nullptr)
    return refuse(SLUICE_INVALID_ARGUMENT,
                  "the session has no streams; call sluice_session_open_streams first");
  return run_guarded([&] { return body(*streams); });
}

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

sluice_status return_request(const Result<uint64_t>& result, sluice_request* request) noexcept {
  if (!result) return refuse(result.error());
  if (request != nullptr) *request = *result;
  return SLUICE_OK;
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
  return refusal.data();
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
  if (status != SLUICE_OK) copy_text(refusal.data(), error, error_size);
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
  if (request != nullptr) *request = 0;
  return call_on_streams(session, [&](Streams& streams) {
    sluice::engine::OpRequest r;
    Result<uint64_t> result;
    if (const char* const error = sluice::api::read_request(send, recv, count, dtype, op, r)) {
      result = sluice::fail(Errc::kInvalidArgument, error);
    } else {
      result = streams.allreduce(r, residual, stream, request != nullptr);
    }
    if (!result) streams.fail_group(result.error());
    return return_request(result, request);
  });
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
