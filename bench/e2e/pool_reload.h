// SIGHUP has a session read the file with its list of reducers again. A thread of its own for as long as it
// lives.
#pragma once

#include <sluice/sluice.h>

#include <thread>

#include "transport/tcp/socket.h"

namespace sluice::bench {

class PoolReload {
 public:
  // Blocks SIGHUP in this thread and those it starts from now on; call before there are others.
  static void block_signal();

  // After block_signal(). The session outlives it. Failure(kExitFailure) when the system has no descriptor.
  explicit PoolReload(sluice_session* session);
  ~PoolReload();
  PoolReload(const PoolReload&) = delete;

 private:
  void run() const;

  sluice_session* const session_;
  transport::tcp::Socket signal_;  // signalfd
  transport::tcp::Socket stop_;    // eventfd
  std::thread thread_;
};

}  // namespace sluice::bench
