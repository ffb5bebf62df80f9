// The collectives of include/sluice/streams.h other than allreduce, and the text of sluice_refusal().
#include <array>

#include "gpu_client/api/caller_buffers.h"
#include "gpu_client/api/request.h"
#include "gpu_client/api/stream_call.h"

using sluice::api::submit_on_stream;
using sluice::engine::OpRequest;
using sluice::wire::Kind;

namespace sluice::api {
namespace {

thread_local std::array<char, 512> refusal{};

}  // namespace

sluice_status refuse(sluice_status status, std::string_view reason) noexcept {
  copy_text(reason, refusal.data(), refusal.size());
  return status;
}

sluice_status refuse(const Error& error) noexcept {
  return refuse(to_status(error.code), error.text);
}

const char* refusal_text() noexcept {
  return refusal.data();
}

sluice_status return_request(const Result<uint64_t>& result, sluice_request* request) noexcept {
  if (!result) return refuse(result.error());
  if (request != nullptr) *request = *result;
  return SLUICE_OK;
}

}  // namespace sluice::api

sluice_status sluice_reduce_scatter_on_stream(sluice_session* session, const void* send, void* recv,
                                              size_t count, const size_t* counts, sluice_dtype dtype,
                                              sluice_op op, float* residual, sluice_stream stream,
                                              sluice_request* request) {
  const auto read = [&](OpRequest& r) {
    return sluice::api::read_parts_of_session(*session->engine, Kind::kReduceScatter, send, recv, count,
                                              counts, dtype, op, r);
  };
  return submit_on_stream(session, read, residual, stream, request);
}

sluice_status sluice_all_gather_on_stream(sluice_session* session, const void* send, void* recv, size_t count,
                                          const size_t* counts, sluice_dtype dtype, sluice_stream stream,
                                          sluice_request* request) {
  const auto read = [&](OpRequest& r) {
    return sluice::api::read_parts_of_session(*session->engine, Kind::kAllGather, send, recv, count, counts,
                                              dtype, SLUICE_SUM, r);
  };
  return submit_on_stream(session, read, nullptr, stream, request);
}

sluice_status sluice_reduce_on_stream(sluice_session* session, const void* send, void* recv, size_t count,
                                      sluice_dtype dtype, sluice_op op, uint32_t root, float* residual,
                                      sluice_stream stream, sluice_request* request) {
  const auto read = [&](OpRequest& r) {
    return sluice::api::read_reduce(*session->engine, send, recv, count, dtype, op, root, r);
  };
  return submit_on_stream(session, read, residual, stream, request);
}

sluice_status sluice_broadcast_on_stream(sluice_session* session, void* buffer, size_t count,
                                         sluice_dtype dtype, uint32_t root, sluice_stream stream,
                                         sluice_request* request) {
  const auto read = [&](OpRequest& r) {
    return sluice::api::read_broadcast(*session->engine, buffer, count, dtype, root, r);
  };
  return submit_on_stream(session, read, nullptr, stream, request);
}
