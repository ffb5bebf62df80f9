#include "gpu_client/api/session_handle.h"

#include <pthread.h>

#include <atomic>

namespace sluice::api {
namespace {

// Lock-free, because fork() may interrupt any thread. The child has one thread when it increments the count.
std::atomic<uint64_t> forks{0};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace

bool install_fork_handler() noexcept {
  static const bool installed =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }) == 0;
  return installed;
}

uint64_t fork_generation() noexcept {
  return forks.load(std::memory_order_relaxed);
}

}  // namespace sluice::api
