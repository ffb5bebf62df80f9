// The collectives of include/sluice/sluice.h other than allreduce: validates arguments and calls the engine.
#include <span>

#include "gpu_client/api/request.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#include "gpu_client/include/sluice/sluice.h"

using sluice::api::catch_exceptions;
using sluice::api::is_owned_by_this_process;
using sluice::api::to_status;
using sluice::engine::OpRequest;
using sluice::pipeline::Streams;
using sluice::wire::Kind;

namespace {

// Starts the operation that `read`, which returns a reason as read_request() does, has made of the arguments.
template <typename Read>
sluice_status start(sluice_session* session, Kind kind, sluice_request* request, Read&& read) noexcept {
  if (request != nullptr) *request = 0;
  if (session == nullptr || request == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_owned_by_this_process(session)) return SLUICE_CLOSED;
  return catch_exceptions([&] {
    OpRequest r{.kind = kind};
    if (read(r) != nullptr) return SLUICE_INVALID_ARGUMENT;
    if (Streams* const streams = session->streams_or_null(); streams != nullptr) {
      const auto started = streams->collective(r);
      if (started) *request = *started;
      return started ? SLUICE_OK : to_status(started.error().code);
    }
    session->has_operations.store(true, std::memory_order_relaxed);
    return to_status(session->engine->start(r, *request).code());
  });
}

template <typename Read>
sluice_status start_parts(sluice_session* session, Kind kind, const void* send, void* recv, size_t count,
                          const size_t* counts, sluice_request* request, Read&& read_types) noexcept {
  return start(session, kind, request, [&](OpRequest& r) {
    if (const char* const reason = read_types(r)) return reason;
    const uint32_t ranks = session->engine->ranks();
    const std::span<const size_t> parts(counts, counts != nullptr ? ranks : 0);
    return sluice::api::read_parts(send, recv, count, parts, session->engine->rank(), ranks, r);
  });
}

const char* read_root(const sluice_session* session, uint32_t root, OpRequest& r) noexcept {
  r.root = root;
  return root < session->engine->ranks() ? nullptr : "root is no rank of the session";
}

}  // namespace

sluice_status sluice_reduce_scatter_async(sluice_session* session, const void* send, void* recv, size_t count,
                                          const size_t* counts, sluice_dtype dtype, sluice_op op,
                                          sluice_request* request) {
  return start_parts(session, Kind::kReduceScatter, send, recv, count, counts, request,
                     [&](OpRequest& r) { return sluice::api::read_types(dtype, op, r); });
}

sluice_status sluice_all_gather_async(sluice_session* session, const void* send, void* recv, size_t count,
                                      const size_t* counts, sluice_dtype dtype, sluice_request* request) {
  return start_parts(session, Kind::kAllGather, send, recv, count, counts, request,
                     [&](OpRequest& r) { return sluice::api::read_types(dtype, SLUICE_SUM, r); });
}

sluice_status sluice_reduce_async(sluice_session* session, const void* send, void* recv, size_t count,
                                  sluice_dtype dtype, sluice_op op, uint32_t root, sluice_request* request) {
  return start(session, Kind::kReduce, request, [&](OpRequest& r) {
    if (const char* const reason = read_root(session, root, r)) return reason;
    // Other ranks receive nothing.
    void* const used = session->engine->rank() == root ? recv : const_cast<void*>(send);
    return sluice::api::read_request(send, used, count, dtype, op, r);
  });
}

sluice_status sluice_broadcast_async(sluice_session* session, void* buffer, size_t count, sluice_dtype dtype,
                                     uint32_t root, sluice_request* request) {
  return start(session, Kind::kBroadcast, request, [&](OpRequest& r) {
    if (const char* const reason = read_root(session, root, r)) return reason;
    return sluice::api::read_request(buffer, buffer, count, dtype, SLUICE_SUM, r);
  });
}
