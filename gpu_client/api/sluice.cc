// Implements the C API of include/sluice/sluice.h: validates arguments and calls the engine.
#include "gpu_client/include/sluice/sluice.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "gpu_client/api/caller_buffers.h"
#include "gpu_client/api/options.h"
#include "gpu_client/api/request.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/local/host_agreement.h"
#include "gpu_client/local/local_session.h"

using sluice::Errc;
using sluice::Nanos;
using sluice::Result;
using sluice::Status;
using sluice::api::catch_exceptions;
using sluice::api::copy_sized;
using sluice::api::copy_text;
using sluice::api::is_owned_by_this_process;
using sluice::api::to_status;
using sluice::engine::CollectiveSession;
using sluice::engine::SessionOptions;
using sluice::pipeline::Streams;

namespace {

// Returns the status of a result. Copies the text of an error to the caller.
template <typename T>
sluice_status report_result(const sluice::Result<T>& result, char* error, size_t error_size) noexcept {
  if (result) return SLUICE_OK;
  copy_text(result.error().text, error, error_size);
  return to_status(result.error().code);
}

// Calls `body`, which may write the text of an error. There is one also after an exception.
template <typename Body>
sluice_status with_text(char* error, size_t error_size, Body&& body) noexcept {
  const sluice_status status = catch_exceptions(std::forward<Body>(body));
  if (status != SLUICE_OK && error != nullptr && error_size > 0 && error[0] == '\0') {
    copy_text(status == SLUICE_SYSTEM ? "out of memory" : "internal error", error, error_size);
  }
  return status;
}

Result<std::unique_ptr<CollectiveSession>> create_session(SessionOptions options) {
  using sluice::local::HostAgreement;
  using sluice::local::LocalSession;
  if (sluice::api::is_on_one_host(options)) return LocalSession::create_on_one_host(std::move(options));
  sluice::engine::JoinLimit limit;
  if (options.host_sharing != sluice::engine::HostSharing::kOff && options.join.identity.ranks > 1) {
    auto agreement = HostAgreement::reach(options);
    if (!agreement) return tl::unexpected(agreement.error());
    if (agreement->shares_memory()) {
      auto session = LocalSession::create(options, *agreement);
      if (!session || *session) return session;
    }
    agreement->hand_over_reducer(options.join);
    limit.time = agreement->deadline();
  }
  return sluice::engine::Session::create(std::move(options), limit);
}

// Calls `body` unless the session is NULL or belongs to the parent process.
template <typename Body>
sluice_status call_on_session(const sluice_session* session, Body&& body) noexcept {
  if (session == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_owned_by_this_process(session)) return SLUICE_CLOSED;
  return catch_exceptions(std::forward<Body>(body));
}

}  // namespace

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
  sluice_options defaults = sluice::api::default_options();
  defaults.struct_size = size;
  copy_sized(defaults, options, size);
}

sluice_status sluice_options_check(const sluice_options* options, char* error, size_t error_size) {
  copy_text(options == nullptr ? "options is NULL" : "", error, error_size);
  if (options == nullptr) return SLUICE_INVALID_ARGUMENT;
  return with_text(error, error_size,
                   [&] { return report_result(sluice::api::read_options(*options), error, error_size); });
}

sluice_status sluice_session_create(const sluice_options* options, sluice_session** session, char* error,
                                    size_t error_size) {
  copy_text("", error, error_size);
  if (session != nullptr) *session = nullptr;
  if (options == nullptr || session == nullptr) {
    copy_text(options == nullptr ? "options is NULL" : "session is NULL", error, error_size);
    return SLUICE_INVALID_ARGUMENT;
  }
  return with_text(error, error_size, [&] {
    auto read = sluice::api::read_options(*options);
    if (!read) return report_result(read, error, error_size);
    if (!sluice::api::install_fork_handler()) return SLUICE_SYSTEM;
    auto handle = std::make_unique<sluice_session>();
    if (auto created = create_session(std::move(*read))) {
      handle->engine = std::move(*created);
    } else {
      return report_result(created, error, error_size);
    }
    *session = handle.release();
    return SLUICE_OK;
  });
}

namespace {

sluice_status start_allreduce(sluice_session* session, const void* send, void* recv, size_t count,
                              sluice_dtype dtype, sluice_op op, bool caller_waits,
                              sluice_request* request) noexcept {
  if (request != nullptr) *request = 0;
  sluice::engine::OpRequest r;
  if (session == nullptr || request == nullptr ||
      sluice::api::read_request(send, recv, count, dtype, op, r) != nullptr)
    return SLUICE_INVALID_ARGUMENT;
  if (!is_owned_by_this_process(session)) return SLUICE_CLOSED;
  // Segments of stream operations reach the network later than their calls, so the ranks would not agree on
  // an order.
  if (session->streams_or_null() != nullptr) return SLUICE_UNSUPPORTED;
  session->has_operations.store(true, std::memory_order_relaxed);
  r.caller_waits = caller_waits;
  return catch_exceptions([&] { return to_status(session->engine->start(r, *request).code()); });
}

}  // namespace

sluice_status sluice_allreduce_async(sluice_session* session, const void* send, void* recv, size_t count,
                                     sluice_dtype dtype, sluice_op op, sluice_request* request) {
  return start_allreduce(session, send, recv, count, dtype, op, false, request);
}

sluice_status sluice_test(sluice_session* session, sluice_request request, int* done) {
  if (done != nullptr) *done = 0;
  if (done == nullptr) return SLUICE_INVALID_ARGUMENT;
  return call_on_session(session, [&] {
    bool ended = false;
    Streams* const streams = session->streams_or_null();
    const Status status = streams != nullptr && Streams::is_stream_request(request)
                              ? streams->test(request, ended)
                              : session->engine->test(request, ended);
    *done = ended ? 1 : 0;
    return to_status(status.code());
  });
}

sluice_status sluice_wait(sluice_session* session, sluice_request request, int timeout_ms) {
  return call_on_session(session, [&] {
    const Nanos deadline = timeout_ms < 0
                               ? sluice::engine::kNoDeadline
                               : sluice::monotonic_now() + Nanos{timeout_ms} * sluice::kMillisecond;
    Streams* const streams = session->streams_or_null();
    const Status status = streams != nullptr && Streams::is_stream_request(request)
                              ? streams->wait(request, deadline)
                              : session->engine->wait(request, deadline);
    return to_status(status.code());
  });
}

sluice_status sluice_allreduce(sluice_session* session, const void* send, void* recv, size_t count,
                               sluice_dtype dtype, sluice_op op) {
  sluice_request request = 0;
  const sluice_status status = start_allreduce(session, send, recv, count, dtype, op, true, &request);
  return status == SLUICE_OK ? sluice_wait(session, request, -1) : status;
}

sluice_status sluice_progress(sluice_session* session) {
  return call_on_session(session, [&] {
    session->engine->progress();
    return to_status(session->engine->code());
  });
}

sluice_status sluice_session_error(sluice_session* session, char* text, size_t text_size) {
  copy_text("", text, text_size);
  if (session == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_owned_by_this_process(session)) {
    copy_text(sluice::api::kForkedText, text, text_size);
    return SLUICE_CLOSED;
  }
  return catch_exceptions([&] {
    const Errc code = session->engine->code();
    if (code != Errc::kOk) copy_text(session->engine->reason(), text, text_size);
    return to_status(code);
  });
}

sluice_status sluice_session_ended_by(sluice_session* session, uint32_t* rank) {
  if (session == nullptr || rank == nullptr) return SLUICE_INVALID_ARGUMENT;
  *rank = is_owned_by_this_process(session) ? session->engine->ended_by() : SLUICE_NO_RANK;
  return SLUICE_OK;
}

sluice_status sluice_session_stats(sluice_session* session, sluice_stats* stats) {
  if (stats == nullptr || stats->struct_size < sizeof stats->struct_size) return SLUICE_INVALID_ARGUMENT;
  return call_on_session(session, [&] {
    const sluice::engine::SessionStats s = session->engine->stats();
    sluice_stats out{};
    out.struct_size = stats->struct_size;
    out.operations = s.operations;
    out.payload_bytes_out = s.lanes.payload_bytes_out;
    out.payload_bytes_in = s.lanes.payload_bytes_in;
    out.wire_bytes_out = s.lanes.wire_bytes_out;
    out.wire_bytes_in = s.lanes.wire_bytes_in;
    out.send_calls = s.lanes.send_calls;
    out.receive_calls = s.lanes.receive_calls;
    out.reducers = s.reducers;
    out.lanes = s.lane_connections;
    out.missing_ranks = s.waiting.missing_ranks;
    out.missing_rank = s.waiting.first_rank;
    out.waited_ms = s.waiting.waited_ms;
    out.connections_resumed = s.recovery.connections_resumed;
    out.view_changes = s.recovery.view_changes;
    out.payload_bytes_resent = s.bytes_resent;
    out.stalled_us = s.recovery.stalled_ns / sluice::kMicrosecond;
    out.longest_stall_us = static_cast<uint64_t>(s.longest_stall / sluice::kMicrosecond);
    std::ranges::copy(s.recovery.stalls, out.stalls);
    out.reducers_lost = s.recovery.reducers_lost;
    out.payload_bytes_copied = s.bytes_copied;
    out.rdma_lanes = s.rdma_lanes;
    out.rdma_work_posted = s.lanes.work_requests;
    out.rdma_doorbells = s.lanes.post_calls;
    out.rdma_completions = s.lanes.completions;
    copy_sized(out, stats, out.struct_size);
    return SLUICE_OK;
  });
}

sluice_status sluice_session_set_reducers(sluice_session* session, const char* reducers, char* error,
                                          size_t error_size) {
  copy_text("", error, error_size);
  return call_on_session(session, [&] {
    std::optional<sluice::config::Pool> pool;
    if (reducers != nullptr) {
      auto read = sluice::config::read_pool(reducers);
      if (!read) return report_result(read, error, error_size);
      pool = std::move(*read);
    }
    return report_result(session->engine->set_reducers(std::move(pool)), error, error_size);
  });
}

sluice_status sluice_session_reducers(sluice_session* session, char* text, size_t text_size) {
  copy_text("", text, text_size);
  return call_on_session(session, [&] {
    std::string list;
    for (const sluice::config::Endpoint& reducer : session->engine->usable_reducers())
      (list += list.empty() ? "" : ",") += sluice::config::to_string(reducer);
    if (list.empty()) list = sluice::config::kNoReducers;
    if (list.size() >= text_size) return SLUICE_INVALID_ARGUMENT;
    copy_text(list, text, text_size);
    return SLUICE_OK;
  });
}

sluice_status sluice_memory_register(sluice_session* session, void* bytes, size_t size, char* error,
                                     size_t error_size) {
  copy_text("", error, error_size);
  if (bytes == nullptr || size == 0) return SLUICE_INVALID_ARGUMENT;
  return call_on_session(session, [&] {
    return report_result(session->engine->register_memory({static_cast<std::byte*>(bytes), size}), error,
                         error_size);
  });
}

sluice_status sluice_memory_register_device(sluice_session* session, void* bytes, size_t size, int dmabuf,
                                            uint64_t offset, char* error, size_t error_size) {
  copy_text("", error, error_size);
  if (bytes == nullptr || size == 0) return SLUICE_INVALID_ARGUMENT;
  return call_on_session(session, [&] {
    return report_result(session->engine->register_device_memory({static_cast<std::byte*>(bytes), size},
                                                                 {.descriptor = dmabuf, .offset = offset}),
                         error, error_size);
  });
}

sluice_status sluice_memory_unregister(sluice_session* session, void* bytes, size_t size) {
  if (bytes == nullptr || size == 0) return SLUICE_INVALID_ARGUMENT;
  return call_on_session(session, [&] {
    return to_status(session->engine->deregister_memory({static_cast<std::byte*>(bytes), size}).code());
  });
}

sluice_status sluice_session_abort(sluice_session* session, const char* reason) {
  constexpr size_t kMaxReason = 200;  // leaves room for what other ranks add in front of it
  return call_on_session(session, [&] {
    const std::string_view text =
        reason == nullptr || *reason == '\0' ? "session aborted" : std::string_view(reason);
    session->engine->abort_for_caller(
        sluice::engine::replace_control_characters(std::string(text.substr(0, kMaxReason))));
    return SLUICE_OK;
  });
}

sluice_status sluice_session_close(sluice_session* session) {
  if (session == nullptr) return SLUICE_OK;
  // A child must not free its parent's session: that could write to the parent's connections. The memory is
  // leaked.
  if (!is_owned_by_this_process(session)) return SLUICE_OK;
  return catch_exceptions([&] {
    const std::unique_ptr<sluice_session> owned(session);
    const Nanos deadline = sluice::monotonic_now() + owned->engine->linger();
    if (owned->streams) owned->streams->close(deadline);
    return to_status(owned->engine->close(deadline).code());
  });
}
