// Redirects sluice_allreduce and sluice_allreduce_async to host streams, with all operations staged.
// engine_test_bed.h includes this header in programs that run the engine's test suites over streams.
#pragma once

#include <sluice/streams.h>

namespace sluice::test {

// 4 staging buffers of 256 KiB in each direction, so that the suites' operations reuse them.
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
  if (request == nullptr) return SLUICE_INVALID_ARGUMENT;  // NULL has another meaning for streams
  return sluice_allreduce_on_stream(session, send, recv, count, dtype, op, nullptr, request);
}

inline sluice_status allreduce_on_streams(sluice_session* session, const void* send, void* recv, size_t count,
                                          sluice_dtype dtype, sluice_op op) {
  sluice_request request = 0;
  const sluice_status status = async_on_streams(session, send, recv, count, dtype, op, &request);
  return status == SLUICE_OK ? sluice_wait(session, request, -1) : status;
}

}  // namespace sluice::test

// NOLINTBEGIN(readability-identifier-naming): macros in place of functions
#define sluice_allreduce_async ::sluice::test::async_on_streams
#define sluice_allreduce ::sluice::test::allreduce_on_streams
// NOLINTEND(readability-identifier-naming)
