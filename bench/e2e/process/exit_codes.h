// Enum ExitCode lists the exit codes of all `sluice` commands (docs/reference/configuration.md). The numbers
// are those of sysexits.h where one fits. A command ends early by throwing Failure; main() prints the text
// and returns the code. Cold path only.
#pragma once

#include <stdexcept>
#include <string>

#include "core/result.h"

namespace sluice::bench {

enum ExitCode : int {
  kExitOk = 0,            // success, including a requested drain
  kExitFailure = 1,       // failure at run time
  kExitCheckFailed = 2,   // a check found wrong data, or a figure misses a required value
  kExitUsage = 64,        // invalid option
  kExitUnavailable = 69,  // no reducer reachable, or the reducer refused
  kExitTryAgain = 75,     // port in use, or no job connected in time
  kExitConfig = 78,       // unreadable key or token, or malformed environment of the platform
  // The codes of shells.
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

// Returns the value, or throws Failure with the text of the error.
template <typename T>
T value_or_fail(Result<T> result, ExitCode code) {
  if (!result) throw Failure(code, result.error().text);
  return std::move(*result);
}

}  // namespace sluice::bench
