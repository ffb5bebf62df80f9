// Exit codes of every `sluice` command (docs/exit-codes.md; numbers of sysexits.h where one fits), and the
// one way a command ends early: throw Failure, main() prints its text and returns its code. Cold path only.
#pragma once

#include <stdexcept>
#include <string>

#include "core/result.h"

namespace sluice::bench {

enum ExitCode : int {
  kExitOk = 0,            // done, or drained as asked
  kExitFailure = 1,       // failed while running
  kExitWrongData = 2,     // a check found wrong data, or a figure below what was asked for
  kExitUsage = 64,        // bad option
  kExitUnavailable = 69,  // no reducer reachable, or it refused
  kExitTryAgain = 75,     // port in use, a job that never came
  kExitConfig = 78,       // key or token unreadable, what the platform says malformed
  // As a shell says it.
  kExitCannotExecute = 126,
  kExitNoCommand = 127,
};

class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// The value, or a Failure with the error's text.
template <typename T>
T value_or_fail(Result<T> result, ExitCode code) {
  if (!result) throw Failure(code, result.error().text);
  return std::move(*result);
}

}  // namespace sluice::bench
