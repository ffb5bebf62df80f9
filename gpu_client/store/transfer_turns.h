// Class TransferTurns limits how many transfers of models run at once in one direction; the others wait in
// the order in which they came. Transfers that share a link end together, and late: until then no step can be
// made of what is pushed, and the other direction has nothing to do. A few at once keep the link busy while
// one of them waits for its slowest owner. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "gpu_client/store/shard_threads.h"

namespace sluice::store_client {

class TransferTurns {
 private:
  struct Waiter {
    std::condition_variable granted;
    ShardThreads* threads = nullptr;  // of its turn; null: it waits
  };

 public:
  static constexpr uint32_t kAtOnce = 4;

  // The right to transfer, until it is destroyed.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)), waiter_(other.waiter_) {}
    Turn& operator=(Turn&&) = delete;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();
    // Those of this turn; they belong to the TransferTurns.
    [[nodiscard]] ShardThreads& threads() noexcept { return *waiter_->threads; }

   private:
    friend class TransferTurns;
    Turn(TransferTurns& turns, std::list<Waiter>::iterator waiter) : turns_(&turns), waiter_(waiter) {}

    TransferTurns* turns_;
    std::list<Waiter>::iterator waiter_;
  };

  explicit TransferTurns(const char* thread_name);  // at most 15 characters

  // Waits for a turn. kTimeout at the deadline.
  [[nodiscard]] Result<Turn> take(Nanos deadline);
  // Calls of take() that wait.
  [[nodiscard]] size_t waiting();

 private:
  void grant();

  std::mutex mutex_;
  std::list<Waiter> waiters_;  // those with a turn first
  std::list<ShardThreads> threads_;
  std::vector<ShardThreads*> free_;  // those that no turn has; the last used last
};

}  // namespace sluice::store_client
