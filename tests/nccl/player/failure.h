// A check of the player that does not hold ends the scenario of this rank, and so the job.
#pragma once

#include <stdexcept>
#include <string>

#include "tests/nccl/player/words.h"

namespace player {

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

}  // namespace player
