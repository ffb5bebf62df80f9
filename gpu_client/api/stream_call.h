// What the functions of include/sluice/streams.h have in common: the reason of a refusal, and calls on the
// streams of a session.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#include "gpu_client/include/sluice/streams.h"

namespace sluice::api {

// Sets the text of sluice_refusal() for this thread and returns `status`.
sluice_status refuse(sluice_status status, std::string_view reason) noexcept;
sluice_status refuse(const Error& error) noexcept;
[[nodiscard]] const char* refusal_text() noexcept;

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
  pipeline::Streams* const streams = session->streams_or_null();
  if (streams == nullptr)
    return refuse(SLUICE_INVALID_ARGUMENT,
                  "the session has no streams; call sluice_session_open_streams first");
  return run_guarded([&] { return body(*streams); });
}

// Sets *request, if there is one, to the request in `result`, or refuses.
sluice_status return_request(const Result<uint64_t>& result, sluice_request* request) noexcept;

// Submits the operation that read(engine::OpRequest&) makes of the caller's arguments. It returns a reason as
// read_request() does.
template <typename Read>
sluice_status submit_on_stream(const sluice_session* session, Read&& read, float* residual,
                               sluice_stream stream, sluice_request* request) noexcept {
  if (request != nullptr) *request = 0;
  return call_on_streams(session, [&](pipeline::Streams& streams) {
    engine::OpRequest r;
    Result<uint64_t> result;
    if (const char* const reason = read(r)) {
      result = fail(Errc::kInvalidArgument, reason);
    } else {
      result = streams.submit(r, residual, stream, request != nullptr);
    }
    if (!result) streams.fail_group(result.error());
    return return_request(result, request);
  });
}

}  // namespace sluice::api
