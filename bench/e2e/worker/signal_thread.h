// Class SignalThread calls a function whenever a signal arrives, on a thread of its own. Programs use it; the
// client library leaves the signals of a process alone.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "transport/tcp/socket.h"

namespace sluice::bench {

class SignalThread {
 public:
  // Blocks the signal in this thread and in threads that it starts later, permanently. The thread of an
  // object gets only signals that all other threads block.
  static void block(int number);

  // Calls block(), too: construct before other threads exist, or call block() before. `name` is for errors.
  // Throws Failure(kExitFailure) when no file descriptor is available.
  SignalThread(int number, const std::string& name, std::function<void()> on_signal);
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;
  // Waits for the end of a call in progress.
  ~SignalThread();

 private:
  void run() const;

  std::function<void()> on_signal_;
  transport::tcp::Socket signal_;  // signalfd
  transport::tcp::Socket stop_;    // eventfd
  std::thread thread_;
};

}  // namespace sluice::bench
