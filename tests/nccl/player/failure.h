// How a scenario ends early.
#pragma once

#include <stdexcept>
#include <string>

#include "tests/nccl/player/words.h"

namespace player {

// A check of the player that does not hold ends the scenario of this rank, and so the job.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw Failure(what);
}

// For calls that have no business to fail.
inline void require_success(Result result, const char* call) {
  if (result != kSuccess) throw Failure(std::string(call) + " returned " + std::to_string(result));
}

// An error of iallreduce or test, which some scenarios are about: what NCCL would end the communicator with.
struct CallFailed : std::runtime_error {
  CallFailed(const char* failed_call, Result its_result)
      : std::runtime_error(std::string(failed_call) + " returned " + std::to_string(its_result)),
        call(failed_call),
        result(its_result) {}

  const char* call;  // a literal
  Result result;
};

}  // namespace player
