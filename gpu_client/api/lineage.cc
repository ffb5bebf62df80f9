#include "gpu_client/api/lineage.h"

#include <pthread.h>

#include <atomic>

namespace sluice::api {
namespace {

// The child has one thread when this is counted up; lock-free, since fork() may interrupt anything.
std::atomic<uint64_t> forks{0};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace

bool watch_forks() noexcept {
  static const bool watched =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }) == 0;
  return watched;
}

uint64_t generation() noexcept {
  return forks.load(std::memory_order_relaxed);
}

}  // namespace sluice::api
