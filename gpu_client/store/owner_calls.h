// Class OwnerCalls makes the requests of one client and one direction to the owners of a model's shards. A
// push and a pull do not wait for each other. One caller at a time, who holds the mutex.
#pragma once

#include <mutex>

#include "gpu_client/store/connection_cache.h"
#include "gpu_client/store/open_model.h"
#include "gpu_client/store/transfer_turns.h"

namespace sluice::store_client {

class OwnerCalls {
 public:
  // `turns`: those of its direction. Both references must outlive this object.
  OwnerCalls(TransferTurns& turns, ConnectionCache& connections) noexcept
      : turns_(turns), connections_(connections) {}

  std::mutex mutex;

  // Waits for a turn, calls `before` if it is not null, then `task` for each shard at the same time, with a
  // connection to its owner. See ShardThreads::run().
  using Task = std::function<Result<void>(uint32_t shard, StoreConnection& owner)>;
  using Before = std::function<Result<void>()>;
  [[nodiscard]] Result<void> run(const OpenModel& model, Nanos deadline, const Task& task,
                                 const Before& before = nullptr);
  // A connection to the owner of shard 0.
  [[nodiscard]] Result<ConnectionCache::Borrowed> leader(const OpenModel& model, Nanos deadline);

  // Waits until the model has started and is at `at_least`, and returns its version. kTimeout at the
  // deadline, or up to 15 s later if there is no connection yet, or the reducer does not run.
  [[nodiscard]] Result<uint64_t> wait_version(const OpenModel& model, uint64_t at_least, Nanos deadline);

 private:
  [[nodiscard]] Result<wire::CurrentAnswer> ask_version(const OpenModel& model, uint64_t at_least,
                                                        Nanos deadline);

  TransferTurns& turns_;
  ConnectionCache& connections_;
};

// Requests that wait at the leader do so for at most this time, then the client asks again. A leader that
// does not answer in time after that is lost.
inline constexpr Nanos kWaitTime = 5 * kSecond;
// The wait in a request that ends at `deadline`.
[[nodiscard]] Nanos wait_time(Nanos deadline) noexcept;
[[nodiscard]] uint32_t wait_ms(Nanos wait) noexcept;
// When the answer to a request must be there that waits at the reducer for `wait`. Longer than any pause of a
// reducer that works: an owner may write a shard to its files first.
[[nodiscard]] Nanos answer_deadline(Nanos wait = 0) noexcept;
// The same for a request that needs no such work. If the reducer opens the model just then, the client asks
// again.
[[nodiscard]] Nanos prompt_deadline(Nanos wait = 0) noexcept;

}  // namespace sluice::store_client
