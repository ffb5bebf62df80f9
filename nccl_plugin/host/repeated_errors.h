// Class RepeatedErrors logs each cause of failed calls on one communicator once, and counts the repetitions.
// NCCL may poll a failed request without end, and a line per poll would fill the disk.
//
// Threads: one at a time. Allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace sluice::nccl {

class RepeatedErrors {
 public:
  // Logs "OBJECT: CALL failed: CODE" for the first failure of this call with this code. `call` is a literal.
  void log_first(const char* object, const char* call, Errc code) noexcept;
  // Logs how many failures were not logged, if any. To be called when the communicator closes.
  void log_suppressed(const char* object) noexcept;

 private:
  struct Cause {
    const char* call = nullptr;
    Errc code = Errc::kOk;
    bool operator==(const Cause&) const = default;
  };
  // More causes than a communicator has; later ones are only counted.
  std::array<Cause, 8> logged_{};
  size_t logged_count_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace sluice::nccl
