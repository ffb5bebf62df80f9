// Class TransferTurns limits how many transfers of models run at once in one direction; the others wait in
// the order in which they came. Transfers that share a link end together, and late: until then no step can be
// made of what is pushed, and the other direction has nothing to do. A few at once keep the link busy while
// one of them waits for its slowest owner.
//
// Any thread. The objects live as long as the process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <utility>

#include "config/endpoints.h"
#include "core/clock.h"
#include "core/result.h"

namespace sluice::store_client {

class TransferTurns {
 private:
  struct Waiter {
    std::condition_variable granted;
    bool has_turn = false;
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

   private:
    friend class TransferTurns;
    Turn(TransferTurns& turns, std::list<Waiter>::iterator waiter) : turns_(&turns), waiter_(waiter) {}

    TransferTurns* turns_;
    std::list<Waiter>::iterator waiter_;
  };

  // Waits for a turn. kTimeout at the deadline.
  [[nodiscard]] Result<Turn> take(Nanos deadline);
  // Calls of take() that wait.
  [[nodiscard]] size_t waiting();

 private:
  void grant();

  std::mutex mutex_;
  std::list<Waiter> waiters_;  // those with a turn first
  uint32_t running_ = 0;       // the number of those
};

struct PoolTurns {
  TransferTurns pushes, pulls;
};

// Those of all clients in this process that were given the same reducers, not of the process that it was
// forked from.
[[nodiscard]] PoolTurns& turns_of(std::span<const config::Endpoint> reducers);

}  // namespace sluice::store_client
