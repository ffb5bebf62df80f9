// Class EarlyEnd ends the waits of a thread that creates a session, when this rank's watch over its host has
// found the end of the session, or when another descriptor is readable.
#pragma once

#include "core/result.h"
#include "transport/tcp/socket.h"

namespace sluice::local {

class EarlyEnd {
 public:
  // `other` outlives the object. Errors: kSystem.
  [[nodiscard]] static Result<EarlyEnd> create(int other);

  // Readable from now on. Any thread.
  void set() noexcept;
  // For poll(2), as the interrupt of a Deadline.
  [[nodiscard]] int fd() const noexcept { return either_.fd(); }

 private:
  EarlyEnd() = default;
  transport::tcp::Socket event_, either_;
};

}  // namespace sluice::local
