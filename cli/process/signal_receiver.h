// Class SignalReceiver delivers SIGINT, SIGTERM, SIGHUP and SIGUSR2 to a waiting thread, without signal
// handlers.
#pragma once

#include "transport/tcp/socket.h"

namespace sluice::cli {

class SignalReceiver {
 public:
  // Blocks the signals in this thread and the threads that it starts later. Construct before other threads
  // start.
  SignalReceiver();

  // Returns the next signal, or 0 when `other_fd` becomes readable first. Only one thread may wait.
  [[nodiscard]] int wait(int other_fd) const;
  // Whether wait() will return SIGINT or SIGTERM.
  [[nodiscard]] bool is_stop_pending() const noexcept;

 private:
  transport::tcp::Socket fd_;
};

}  // namespace sluice::cli
