// The C face: checks arguments, and hands them to the engine. include/sluice/sluice.h is the manual.
#include "gpu_client/include/sluice/sluice.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "gpu_client/api/caller_words.h"
#include "gpu_client/api/guard.h"
#include "gpu_client/api/options.h"
#include "gpu_client/api/request.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#include "gpu_client/engine/session.h"

using sluice::Errc;
using sluice::Nanos;
using sluice::Status;
using sluice::api::copy_sized;
using sluice::api::copy_text;
using sluice::api::guarded;
using sluice::api::is_ours;
using sluice::api::to_status;
using sluice::pipeline::Streams;

const char* sluice_version(void) {
  return SLUICE_VERSION;
}

const char* sluice_status_string(sluice_status status) {
  switch (status) {
    case SLUICE_OK: return "ok";
    case SLUICE_AGAIN: return "again";
    case SLUICE_INVALID_ARGUMENT: return "invalid argument";
    case SLUICE_UNSUPPORTED: return "unsupported";
    case SLUICE_REFUSED: return "refused";
    case SLUICE_TIMEOUT: return "timeout";
    case SLUICE_MISMATCH: return "mismatch";
    case SLUICE_LOST: return "lost";
    case SLUICE_CLOSED: return "closed";
    case SLUICE_PROTOCOL: return "protocol";
    case SLUICE_SYSTEM: return "system";
    case SLUICE_INTERNAL: return "internal";
  }
  return "unknown";
}

void sluice_options_init_sized(sluice_options* options, size_t size) {
  if (options == nullptr || size < sizeof options->struct_size) return;
  sluice_options own = sluice::api::default_options();
  own.struct_size = size;
  copy_sized(own, options, size);
}

sluice_status sluice_session_create(const sluice_options* options, sluice_session** session, char* error,
                                    size_t error_size) {
  copy_text("", error, error_size);
  if (session != nullptr) *session = nullptr;
  if (options == nullptr || session == nullptr) {
    copy_text(options == nullptr ? "options is NULL" : "session is NULL", error, error_size);
    return SLUICE_INVALID_ARGUMENT;
  }
  const sluice_status status = guarded([&] {
    auto read = sluice::api::read_options(*options);
    if (!read) {
      copy_text(read.error().text, error, error_size);
      return to_status(read.error().code);
    }
    if (!sluice::api::watch_forks()) return SLUICE_SYSTEM;
    auto made = std::make_unique<sluice_session>();
    auto engine = sluice::engine::Session::create(std::move(*read));
    if (!engine) {
      copy_text(engine.error().text, error, error_size);
      return to_status(engine.error().code);
    }
    made->engine = std::move(*engine);
    *session = made.release();
    return SLUICE_OK;
  });
  if (status != SLUICE_OK && error != nullptr && error_size > 0 && error[0] == '\0') {
    copy_text(status == SLUICE_SYSTEM ? "out of memory" : "internal error", error, error_size);
  }
  return status;
}

sluice_status sluice_allreduce_async(sluice_session* session, const void* send, void* recv, size_t count,
                                     sluice_dtype dtype, sluice_op op, sluice_request* request) {
  if (request != nullptr) *request = 0;
  sluice::engine::OpRequest r;
  if (session == nullptr || request == nullptr ||
      sluice::api::read_request(send, recv, count, dtype, op, r) != nullptr)
    return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  // The pieces of its streams' operations are issued later than their calls: ranks would not agree on an
  // order.
  if (session->open_streams() != nullptr) return SLUICE_UNSUPPORTED;
  session->has_begun.store(true, std::memory_order_relaxed);
  return guarded([&] { return to_status(session->engine->allreduce(r, *request).code()); });
}

sluice_status sluice_test(sluice_session* session, sluice_request request, int* done) {
  if (done != nullptr) *done = 0;
  if (session == nullptr || done == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    bool ended = false;
    Streams* const streams = session->open_streams();
    const Status status = streams != nullptr && Streams::is_name(request)
                              ? streams->test(request, ended)
                              : session->engine->test(request, ended);
    *done = ended ? 1 : 0;
    return to_status(status.code());
  });
}

sluice_status sluice_wait(sluice_session* session, sluice_request request, int timeout_ms) {
  if (session == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    const Nanos deadline = timeout_ms < 0
                               ? sluice::engine::kNoDeadline
                               : sluice::monotonic_now() + Nanos{timeout_ms} * sluice::kMillisecond;
    Streams* const streams = session->open_streams();
    const Status status = streams != nullptr && Streams::is_name(request)
                              ? streams->wait(request, deadline)
                              : session->engine->wait(request, deadline);
    return to_status(status.code());
  });
}

sluice_status sluice_allreduce(sluice_session* session, const void* send, void* recv, size_t count,
                               sluice_dtype dtype, sluice_op op) {
  sluice_request request = 0;
  const sluice_status status = sluice_allreduce_async(session, send, recv, count, dtype, op, &request);
  return status == SLUICE_OK ? sluice_wait(session, request, -1) : status;
}

sluice_status sluice_progress(sluice_session* session) {
  if (session == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    session->engine->progress();
    return to_status(session->engine->code());
  });
}

sluice_status sluice_session_error(sluice_session* session, char* text, size_t text_size) {
  copy_text("", text, text_size);
  if (session == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) {
    copy_text("the session belongs to the process that this one was forked from", text, text_size);
    return SLUICE_CLOSED;
  }
  return guarded([&] {
    const Errc code = session->engine->code();
    if (code != Errc::kOk) copy_text(session->engine->reason(), text, text_size);
    return to_status(code);
  });
}

sluice_status sluice_session_stats(sluice_session* session, sluice_stats* stats) {
  if (session == nullptr || stats == nullptr || stats->struct_size < sizeof stats->struct_size)
    return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    const sluice::engine::SessionStats s = session->engine->stats();
    sluice_stats own{};
    own.struct_size = stats->struct_size;
    own.operations = s.operations;
    own.payload_bytes_out = s.lanes.payload_bytes_out;
    own.payload_bytes_in = s.lanes.payload_bytes_in;
    own.wire_bytes_out = s.lanes.wire_bytes_out;
    own.wire_bytes_in = s.lanes.wire_bytes_in;
    own.send_calls = s.lanes.send_calls;
    own.receive_calls = s.lanes.receive_calls;
    own.reducers = s.reducers;
    own.lanes = s.lane_connections;
    own.missing_ranks = s.waiting.missing_ranks;
    own.missing_rank = s.waiting.first_rank;
    own.waited_ms = s.waiting.waited_ms;
    own.connections_resumed = s.survival.connections_resumed;
    own.view_changes = s.survival.view_changes;
    own.payload_bytes_resent = s.bytes_resent;
    own.stalled_us = s.survival.stalled_ns / sluice::kMicrosecond;
    own.longest_stall_us = s.survival.longest_stall_ns / sluice::kMicrosecond;
    std::ranges::copy(s.survival.stalls, own.stalls);
    own.reducers_lost = s.survival.reducers_lost;
    own.payload_bytes_copied = s.bytes_copied;
    own.rdma_lanes = s.rdma_lanes;
    own.rdma_work_posted = s.lanes.work_requests;
    own.rdma_doorbells = s.lanes.doorbells;
    own.rdma_completions = s.lanes.completions;
    copy_sized(own, stats, own.struct_size);
    return SLUICE_OK;
  });
}

sluice_status sluice_session_set_reducers(sluice_session* session, const char* reducers, char* error,
                                          size_t error_size) {
  copy_text("", error, error_size);
  if (session == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    std::optional<sluice::config::Pool> pool;
    if (reducers != nullptr) {
      auto read = sluice::config::read_pool(reducers);
      if (!read) {
        copy_text(read.error().text, error, error_size);
        return to_status(read.error().code);
      }
      pool = std::move(*read);
    }
    const auto set = session->engine->set_reducers(std::move(pool));
    if (set) return SLUICE_OK;
    copy_text(set.error().text, error, error_size);
    return to_status(set.error().code);
  });
}

sluice_status sluice_memory_register(sluice_session* session, void* bytes, size_t size, char* error,
                                     size_t error_size) {
  copy_text("", error, error_size);
  if (session == nullptr || bytes == nullptr || size == 0) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    const auto known = session->engine->know_memory({static_cast<std::byte*>(bytes), size});
    if (known) return SLUICE_OK;
    copy_text(known.error().text, error, error_size);
    return to_status(known.error().code);
  });
}

sluice_status sluice_memory_register_device(sluice_session* session, void* bytes, size_t size, int dmabuf,
                                            uint64_t offset, char* error, size_t error_size) {
  copy_text("", error, error_size);
  if (session == nullptr || bytes == nullptr || size == 0) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    const auto known = session->engine->know_device_memory({static_cast<std::byte*>(bytes), size},
                                                           {.descriptor = dmabuf, .offset = offset});
    if (known) return SLUICE_OK;
    copy_text(known.error().text, error, error_size);
    return to_status(known.error().code);
  });
}

sluice_status sluice_memory_unregister(sluice_session* session, void* bytes, size_t size) {
  if (session == nullptr || bytes == nullptr || size == 0) return SLUICE_INVALID_ARGUMENT;
  if (!is_ours(session)) return SLUICE_CLOSED;
  return guarded([&] {
    return to_status(session->engine->forget_memory({static_cast<std::byte*>(bytes), size}).code());
  });
}

sluice_status sluice_session_close(sluice_session* session) {
  if (session == nullptr) return SLUICE_OK;
  // Nothing of a parent's session can be ended or freed without disturbing the parent: the memory goes with
  // the process.
  if (!is_ours(session)) return SLUICE_OK;
  return guarded([&] {
    const std::unique_ptr<sluice_session> owned(session);
    const Nanos deadline = sluice::monotonic_now() + owned->engine->linger();
    if (owned->streams) owned->streams->close(deadline);
    return to_status(owned->engine->close(deadline).code());
  });
}
