// Class ScopedSignalBlock blocks all signals of the calling thread while it exists.
//
// Threads that start meanwhile inherit the mask for good. A reducer in a worker process must not run the
// process's signal handlers on its threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace sluice::reducer {

class ScopedSignalBlock {
 public:
  ScopedSignalBlock() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ScopedSignalBlock(const ScopedSignalBlock&) = delete;
  ScopedSignalBlock& operator=(const ScopedSignalBlock&) = delete;
  ~ScopedSignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace sluice::reducer
