// SIGINT, SIGTERM and SIGHUP as something to wait for, without handlers.
#pragma once

#include "transport/tcp/socket.h"

namespace sluice::cli {

class StopSignals {
 public:
  // Blocks them in this thread and those it starts from now on. Construct before other threads.
  StopSignals();

  // The next of them, or 0 when `other` became readable first. Any one thread.
  [[nodiscard]] int wait(int other) const;

 private:
  transport::tcp::Socket fd_;
};

}  // namespace sluice::cli
