// Class StepLeader makes the steps of one model: it decides which pushes a step contains, lets all owners
// prepare the version, and commits it in the coordinator. The owner of shard 0 has one, with its own thread.
//
// A step that cannot be completed is abandoned and made again; pushes wait meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "store/coordinator/coordinator.h"
#include "store/leader/step_planner.h"
#include "store/server/hosted_model.h"
#include "store/server/peer_links.h"
#include "wire/store_messages.h"

namespace sluice::store {

class StepLeader {
 public:
  using Log = std::function<void(const std::string&)>;
  // The model is started. Starts the thread. `log` gets a line when steps cannot be made; any thread.
  StepLeader(std::shared_ptr<HostedModel> model, Coordinator& coordinator, ConnectToStore connect, Log log);
  StepLeader(const StepLeader&) = delete;
  StepLeader& operator=(const StepLeader&) = delete;
  ~StepLeader();

  // Ends all waits at once, those of threads that hold a reference too: pushes get kShutdown. Any thread.
  void end() noexcept;

  [[nodiscard]] ModelCounters& counters() const noexcept { return *model_->counters(); }

  // ---- any thread ----
  // Blocks until a version contains the push or none will. Errors: kTimeout; kReset while the coordinator
  // does not answer; kShutdown.
  [[nodiscard]] Result<wire::PushAnswer> push(const StagedPush& push, Nanos deadline);
  // The current version; waits for `at_least` until the deadline, then returns an earlier one.
  [[nodiscard]] uint64_t wait_current(uint64_t at_least, Nanos deadline);
  // Shard 0 has changed hands, maybe back to this reducer: pushes get kBadView. Another leader has made, or
  // will make, the steps after those of this one.
  [[nodiscard]] bool has_ended() const;

 private:
  struct Waiter {
    uint64_t number = 0;
    std::optional<wire::PushOutcome> outcome;
    uint32_t threads = 0;  // that wait for a push of the worker; the entry ends with the last one
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  // Gives the model's state a new revision, so that owners know STEPs of this leader from those of an earlier
  // one, also of this reducer before a restart. False: this reducer leads no more, or stops.
  [[nodiscard]] bool claim();
  // Makes the step and commits it. Errors: kBadSequence: a delta is missing. kBadView: another reducer leads.
  [[nodiscard]] Result<void> make(const PlannedStep& step);
  [[nodiscard]] Result<void> prepare(const PlannedStep& step, const CoordinatedState& state);
  [[nodiscard]] Result<void> commit(const CoordinatedState& prepared, uint64_t version);
  // Reads the model's state after a failure: shards may have changed hands.
  void refresh();
  // Whether shard 0 is where it was when this leader began.
  [[nodiscard]] bool leads() const;
  // Whether its next step follows the model's version.
  [[nodiscard]] bool knows_version() const;
  // When to give up the answer of an owner: the model's state has changed since `revision`, so that an
  // attempt that was prepared with it cannot be committed any more, or the reducer stops.
  [[nodiscard]] PeerLinks::IsOver until_changed(Revision revision);
  void announce(uint64_t version, const CoordinatedState& state);
  void resolve(std::span<const StagedPush> pushes, wire::PushOutcome outcome);

  const std::shared_ptr<HostedModel> model_;
  Coordinator& coordinator_;
  const std::string key_;
  const uint64_t generation_;  // of shard 0
  PeerLinks links_;            // the leader's thread only, as the next
  uint64_t attempts_ = 0;      // at steps
  const Log log_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // work for the thread, or an end of a wait
  StepPlanner planner_;
  std::map<uint64_t, Waiter> waiters_;  // by worker
  std::string failure_;      // of the last attempt at a step; empty: none failed since the last step
  std::string unavailable_;  // why pushes are refused now; empty: they are not
  bool is_stopping_ = false;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace sluice::store
