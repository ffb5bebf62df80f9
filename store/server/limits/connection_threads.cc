#include "store/server/limits/connection_threads.h"

#include <iterator>
#include <utility>

namespace sluice::store {

void ConnectionThreads::start(std::function<void()> serve) {
  std::list<std::thread> ended;
  {
    const std::scoped_lock lock(mutex_);
    ended.swap(ended_);
    const auto mine = running_.emplace(running_.end());
    try {
      *mine = std::thread([this, mine, serve = std::move(serve)]() mutable {
        std::exchange(serve, nullptr)();
        const std::scoped_lock ending(mutex_);
        ended_.splice(ended_.end(), running_, mine);
        ended_one_.notify_all();
      });
    } catch (...) {
      running_.erase(mine);
      ended_.splice(ended_.end(), ended);
      throw;
    }
  }
  for (std::thread& thread : ended) thread.join();
}

void ConnectionThreads::join() {
  for (;;) {
    std::list<std::thread> ended;
    {
      std::unique_lock lock(mutex_);
      ended_one_.wait(lock, [&] { return !ended_.empty() || running_.empty(); });
      if (ended_.empty()) return;
      ended.swap(ended_);
    }
    for (std::thread& thread : ended) thread.join();
  }
}

}  // namespace sluice::store
