// Class DumpSignalReceiver writes the black box of this process whenever SIGUSR2 arrives, on a thread of its
// own. Programs have one; the client library leaves the signals of a process alone.
#pragma once

#include <thread>

#include "transport/tcp/socket.h"

namespace sluice::bench {

class DumpSignalReceiver {
 public:
  // Blocks SIGUSR2 in this thread and in threads that it starts later, permanently. Construct before other
  // threads exist. Throws Failure(kExitFailure) when no file descriptor is available.
  DumpSignalReceiver();
  DumpSignalReceiver(const DumpSignalReceiver&) = delete;
  DumpSignalReceiver& operator=(const DumpSignalReceiver&) = delete;
  ~DumpSignalReceiver();

 private:
  void run() const;

  transport::tcp::Socket signal_;  // signalfd
  transport::tcp::Socket stop_;    // eventfd
  std::thread thread_;
};

}  // namespace sluice::bench
