// The collectives of include/sluice/sluice.h other than allreduce: validates arguments and calls the engine.
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
sluice_status start(sluice_session* session, sluice_request* request, Read&& read) noexcept {
  if (request != nullptr) *request = 0;
  if (session == nullptr || request == nullptr) return SLUICE_INVALID_ARGUMENT;
  if (!is_owned_by_this_process(session)) return SLUICE_CLOSED;
  return catch_exceptions([&] {
    OpRequest r;
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

}  // namespace

sluice_status sluice_reduce_scatter_async(sluice_session* session, const void* send, void* recv, size_t count,
                                          const size_t* counts, sluice_dtype dtype, sluice_op op,
                                          sluice_request* request) {
  return start(session, request, [&](OpRequest& r) {
    return sluice::api::read_parts_of_session(*session->engine, Kind::kReduceScatter, send, recv, count,
                                              counts, dtype, op, r);
  });
}

sluice_status sluice_all_gather_async(sluice_session* session, const void* send, void* recv, size_t count,
                                      const size_t* counts, sluice_dtype dtype, sluice_request* request) {
  return start(session, request, [&](OpRequest& r) {
    return sluice::api::read_parts_of_session(*session->engine, Kind::kAllGather, send, recv, count, counts,
                                              dtype, SLUICE_SUM, r);
  });
}

sluice_status sluice_reduce_async(sluice_session* session, const void* send, void* recv, size_t count,
                                  sluice_dtype dtype, sluice_op op, uint32_t root, sluice_request* request) {
  return start(session, request, [&](OpRequest& r) {
    return sluice::api::read_reduce(*session->engine, send, recv, count, dtype, op, root, r);
  });
}

sluice_status sluice_broadcast_async(sluice_session* session, void* buffer, size_t count, sluice_dtype dtype,
                                     uint32_t root, sluice_request* request) {
  return start(session, request, [&](OpRequest& r) {
    return sluice::api::read_broadcast(*session->engine, buffer, count, dtype, root, r);
  });
}
