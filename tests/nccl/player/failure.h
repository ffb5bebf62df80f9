// Exceptions that end a scenario early.
#pragma once

#include <stdexcept>
#include <string>

#include "tests/nccl/player/nccl_types.h"

namespace player {

// A failed check. It ends the scenario of this rank, and so the job.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw Failure(what);
}

// How often a failed request is tested again. NCCL 2.23 to 2.25 do so without end after an abort.
constexpr int kPollsOfFailedRequest = 10'000;

// For calls that must not fail.
inline void require_success(Result result, const char* call) {
  if (result != kSuccess) throw Failure(std::string(call) + " returned " + std::to_string(result));
}

// An error of iallreduce or test, after which NCCL would abort the communicator. Some scenarios expect it.
struct CallFailed : std::runtime_error {
  CallFailed(const char* failed_call, Result failed_result)
      : std::runtime_error(std::string(failed_call) + " returned " + std::to_string(failed_result)),
        call(failed_call),
        result(failed_result) {}

  const char* call;  // a literal
  Result result;
};

}  // namespace player
