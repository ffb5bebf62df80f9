// The C face of streams: checks arguments, and hands them to the pipeline. include/sluice/streams.h is the
// manual.
#include "gpu_client/include/sluice/streams.h"

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "gpu_client/api/caller_words.h"
#include "gpu_client/api/guard.h"
#include "gpu_client/api/request.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#include "gpu_client/api/stream_options.h"
#ifdef SLUICE_HAVE_CUDA
#include "gpu_client/cuda/cuda_device.h"
#endif
#include "gpu_client/host/host_device.h"
#include "gpu_client/host/host_stream.h"

using sluice::Errc;
using sluice::Error;
using sluice::Result;
using sluice::api::copy_sized;
using sluice::api::copy_text;
using sluice::api::guarded;
using sluice::api::is_ours;
using sluice::api::to_status;
using sluice::host::HostStream;
using sluice::pipeline::Streams;

namespace {

constexpr const char* kForked = "the session belongs to the process that this one was forked from";

// sluice_refusal's, of each thread.
thread_local std::array<char, 512> refusal{};

sluice_status refuse(sluice_status status, std::string_view words) noexcept {
  copy_text(words, refusal.data(), refusal.size());
  return status;
}
sluice_status refuse(const Error& error) noexcept {
  return refuse(to_status(error.code), error.text);
}

// What `body` returns, with words where an exception left none.
template <typename Body>
sluice_status answer(Body&& body) noexcept {
  bool returned = false;
  const sluice_status status = guarded([&] {
    const sluice_status said = std::forward<Body>(body)();
    returned = true;
    return said;
  });
  if (returned) return status;
  return refuse(status, status == SLUICE_SYSTEM ? "out of memory" : "internal error");
}

// SLUICE_OK and the session's streams, or why there are none.
sluice_status find_streams(const sluice_session* session, Streams*& streams) noexcept {
  if (session == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "session is NULL");
  if (!is_ours(session)) return refuse(SLUICE_CLOSED, kForked);
  streams = session->open_streams();
  if (streams != nullptr) return SLUICE_OK;
  return refuse(SLUICE_INVALID_ARGUMENT, "the session has no streams: sluice_session_open_streams first");
}

sluice_status give_name(const Result<uint64_t>& given, sluice_request* request) noexcept {
  if (!given) return refuse(given.error());
  if (request != nullptr) *request = *given;
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
  const std::lock_guard lock(session.opening);
  if (session.streams) return sluice::fail(Errc::kInvalidArgument, "the session has streams already");
  if (session.has_begun.load(std::memory_order_relaxed)) {
    return sluice::fail(Errc::kInvalidArgument, "the session has had operations: open its streams before");
  }
  auto setting = sluice::api::read_stream_options(options);
  if (!setting) return tl::unexpected(setting.error());
  auto device = open_device(setting->kind, setting->device);
  if (!device) return tl::unexpected(device.error());
  auto streams = Streams::open(*session.engine, std::move(*device), setting->streams);
  if (!streams) return tl::unexpected(streams.error());
  session.streams = std::move(*streams);
  session.opened.store(session.streams.get(), std::memory_order_release);
  return {};
}

}  // namespace

const char* sluice_refusal(void) {
  return refusal.data();
}

void sluice_stream_options_init_sized(sluice_stream_options* options, size_t size) {
  if (options == nullptr || size < sizeof options->struct_size) return;
  sluice_stream_options own = sluice::api::default_stream_options();
  own.struct_size = size;
  copy_sized(own, options, size);
}

sluice_status sluice_session_open_streams(sluice_session* session, const sluice_stream_options* options,
                                          char* error, size_t error_size) {
  copy_text("", error, error_size);
  const auto open = [&] {
    if (session == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "session is NULL");
    if (!is_ours(session)) return refuse(SLUICE_CLOSED, kForked);
    // Not copied: a struct of a newer version is longer than ours.
    const sluice_stream_options defaults = sluice::api::default_stream_options();
    const auto opened = open_streams(*session, options != nullptr ? *options : defaults);
    return opened ? SLUICE_OK : refuse(opened.error());
  };
  const sluice_status status = answer(open);
  if (status != SLUICE_OK) copy_text(refusal.data(), error, error_size);
  return status;
}

sluice_status sluice_allreduce_on_stream(sluice_session* session, const void* send, void* recv, size_t count,
                                         sluice_dtype dtype, sluice_op op, sluice_stream stream,
                                         sluice_request* request) {
  if (request != nullptr) *request = 0;
  Streams* streams = nullptr;
  if (const sluice_status status = find_streams(session, streams); status != SLUICE_OK) return status;
  return answer([&] {
    sluice::engine::OpRequest r;
    Result<uint64_t> given;
    if (const char* const wrong = sluice::api::read_request(send, recv, count, dtype, op, r)) {
      given = sluice::fail(Errc::kInvalidArgument, wrong);
    } else {
      given = streams->allreduce(r, stream, request != nullptr);
    }
    if (!given) streams->spoil_group(given.error());
    return give_name(given, request);
  });
}

sluice_status sluice_group_begin(sluice_session* session) {
  Streams* streams = nullptr;
  if (const sluice_status status = find_streams(session, streams); status != SLUICE_OK) return status;
  return answer([&] {
    const auto begun = streams->begin_group();
    return begun ? SLUICE_OK : refuse(begun.error());
  });
}

sluice_status sluice_group_end(sluice_session* session, sluice_request* request) {
  if (request != nullptr) *request = 0;
  Streams* streams = nullptr;
  if (const sluice_status status = find_streams(session, streams); status != SLUICE_OK) return status;
  return answer([&] { return give_name(streams->end_group(request != nullptr), request); });
}

sluice_status sluice_session_stream_stats(sluice_session* session, sluice_stream_stats* stats) {
  if (stats == nullptr || stats->struct_size < sizeof stats->struct_size)
    return refuse(SLUICE_INVALID_ARGUMENT, "stats is NULL, or its struct_size is not set");
  Streams* streams = nullptr;
  if (const sluice_status status = find_streams(session, streams); status != SLUICE_OK) return status;
  return answer([&] {
    const auto counted = streams->stats();
    if (!counted) return refuse(counted.error());
    sluice_stream_stats own{};
    own.struct_size = stats->struct_size;
    own.operations = counted->carried.operations;
    own.rounds = counted->rounds;
    own.pieces = counted->carried.pieces;
    own.bytes_staged_out = counted->bytes_staged_out;
    own.bytes_staged_in = counted->bytes_staged_in;
    own.pinned_bytes = counted->pinned_bytes;
    own.elements_cast = counted->elements_cast;
    own.cast_error_squares = counted->error.error_squares;
    own.cast_value_squares = counted->error.value_squares;
    copy_sized(own, stats, own.struct_size);
    return SLUICE_OK;
  });
}

sluice_status sluice_host_stream_create(sluice_stream* stream) {
  if (stream == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "stream is NULL");
  *stream = nullptr;
  return answer([&] {
    auto started = HostStream::start();
    if (!started) return refuse(started.error());
    *stream = started->release();
    return SLUICE_OK;
  });
}

sluice_status sluice_host_stream_submit(sluice_stream stream, void (*work)(void* argument), void* argument) {
  if (work == nullptr) return refuse(SLUICE_INVALID_ARGUMENT, "work is NULL");
  return answer([&] {
    if (!HostStream::is_one(stream)) return refuse(SLUICE_INVALID_ARGUMENT, "stream is no host stream");
    static_cast<HostStream*>(stream)->submit([work, argument] { work(argument); });
    return SLUICE_OK;
  });
}

sluice_status sluice_host_stream_synchronize(sluice_stream stream) {
  return answer([&] {
    if (!HostStream::is_one(stream)) return refuse(SLUICE_INVALID_ARGUMENT, "stream is no host stream");
    static_cast<HostStream*>(stream)->synchronize();
    return SLUICE_OK;
  });
}

sluice_status sluice_host_stream_destroy(sluice_stream stream) {
  if (stream == nullptr) return SLUICE_OK;
  return answer([&] {
    if (!HostStream::is_one(stream)) return refuse(SLUICE_INVALID_ARGUMENT, "stream is no host stream");
    delete static_cast<HostStream*>(stream);
    return SLUICE_OK;
  });
}
