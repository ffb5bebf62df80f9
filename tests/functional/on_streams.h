// Included by engine_world.h in programs that run the engine's suites over streams of the host: every session
// has streams with all operations staged, and operations with a request go through them.
#pragma once

#include <sluice/streams.h>

namespace sluice::test {

// 4 places of 256 KiB each way, so that the suites' operations go round in them.
inline sluice_status open_small_streams(sluice_session* session) {
  sluice_stream_options o;
  sluice_stream_options_init(&o);
  o.staging_bytes = 2 << 20;
  o.piece_bytes = 256 << 10;
  o.always_staged = 1;
  return sluice_session_open_streams(session, &o, nullptr, 0);
}

inline sluice_status async_on_streams(sluice_session* session, const void* send, void* recv, size_t count,
                                      sluice_dtype dtype, sluice_op op, sluice_request* request) {
  if (request == nullptr) return SLUICE_INVALID_ARGUMENT;  // the one call that means something else there
  return sluice_allreduce_on_stream(session, send, recv, count, dtype, op, nullptr, request);
}

inline sluice_status allreduce_on_streams(sluice_session* session, const void* send, void* recv, size_t count,
                                          sluice_dtype dtype, sluice_op op) {
  sluice_request request = 0;
  const sluice_status status = async_on_streams(session, send, recv, count, dtype, op, &request);
  return status == SLUICE_OK ? sluice_wait(session, request, -1) : status;
}

}  // namespace sluice::test

// NOLINTBEGIN(readability-identifier-naming): they stand for functions
#define sluice_allreduce_async ::sluice::test::async_on_streams
#define sluice_allreduce ::sluice::test::allreduce_on_streams
// NOLINTEND(readability-identifier-naming)
