// Class PoolReloader makes a session read its pool file again on SIGHUP. A thread waits for the signal during
// the lifetime of the object.
#pragma once

#include <sluice/sluice.h>

#include <thread>

#include "transport/tcp/socket.h"

namespace sluice::bench {

class PoolReloader {
 public:
  // Blocks SIGHUP in this thread and in threads that it starts later. Call before other threads exist.
  static void block_signal();

  // Call after block_signal(). The session must outlive the object. Throws Failure(kExitFailure) when no file
  // descriptor is available.
  explicit PoolReloader(sluice_session* session);
  ~PoolReloader();
  PoolReloader(const PoolReloader&) = delete;

 private:
  void run() const;

  sluice_session* const session_;
  transport::tcp::Socket signal_;  // signalfd
  transport::tcp::Socket stop_;    // eventfd
  std::thread thread_;
};

}  // namespace sluice::bench
