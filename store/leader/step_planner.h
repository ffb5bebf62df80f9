// Class StepPlanner decides which pushes the next step of a model contains. The leader of a model, the owner
// of its shard 0, has one (docs/design/adr/0022-parameter-service.md).
//
//   offer() each push that all owners have staged, or that is early -> next_step() -> committed(), or
//   abandoned() and again
//
// sync: a step needs `quorum` pushes that are based on the current version. After the quorum it waits
// `grace_ms` for others, which then count by their weights. Later ones are late: their base is no longer the
// current version. async and bounded: each push is a step, in the order of arrival. In bounded mode a push
// whose base is s > `staleness` versions old is refused, or its weight is multiplied by
// (staleness + 1) / (s + 1).
//
// One step is in progress at a time. No threads, no clock: the caller passes the time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/units.h"
#include "store/model/model_spec.h"
#include "store/versions/slot_header.h"

namespace sluice::store {

struct StagedPush {
  PushIdentity identity;
  uint64_t base = 0;  // the version that the worker started from
  float weight = 1;
  bool is_early = false;  // its delta may still be on its way to the owners
};

enum class Admission : uint8_t {
  kAccepted,    // a step will contain it
  kWaits,       // it was accepted before, and no version contains it yet
  kContained,   // a version contains it: acknowledge it again
  kSuperseded,  // a version contains a later push of this worker
  kLate,        // sync: based on an earlier version than the current one
  kStale,       // bounded: based on a version more than `staleness` steps ago
  kFuture,      // based on a version that does not exist
};

struct PlannedStep {
  uint64_t version = 0;            // that the step makes
  std::vector<StagedPush> pushes;  // in the order of their workers, with the weights that count
};

class StepPlanner {
 public:
  // Workers whose last contained pushes are remembered for certain, as by versions.
  static constexpr size_t kRemembered = 1024;

  // `contained`: the last push of each worker that the versions up to `current` contain.
  StepPlanner(const StepMode& mode, uint64_t current, std::map<uint64_t, uint64_t> contained);

  [[nodiscard]] uint64_t current() const noexcept { return current_; }
  // Accepted pushes that no step contains yet.
  [[nodiscard]] size_t waiting() const noexcept { return waiting_.size(); }

  // Push numbers of a worker increase.
  [[nodiscard]] Admission offer(const StagedPush& push, Nanos now);
  // Owners have forgotten what was staged for this push. No effect on the step in progress.
  void withdraw(PushIdentity identity);

  // The step to start now, if none is in progress. `stale` receives the accepted pushes that meanwhile became
  // too old; answer them with kStale.
  [[nodiscard]] std::optional<PlannedStep> next_step(Nanos now, std::vector<StagedPush>& stale);
  // When next_step() may return a step although nothing else happens.
  [[nodiscard]] std::optional<Nanos> deadline() const noexcept;

  // The step in progress is the current version now. Returns the pushes that are late since: answer them with
  // kLate.
  [[nodiscard]] std::vector<StagedPush> committed();
  // The step in progress was not committed. Its pushes wait again, before all others.
  void abandoned();

 private:
  [[nodiscard]] Admission judge(const StagedPush& push) const noexcept;
  [[nodiscard]] PlannedStep start();
  void forget_oldest();

  const StepMode mode_;
  uint64_t current_;
  std::map<uint64_t, uint64_t> contained_;  // by worker; at most twice kRemembered
  std::deque<StagedPush> waiting_;          // in order of arrival; at most one of a worker
  bool in_progress_ = false;
  std::vector<StagedPush> taken_;    // by the step in progress, as they were offered
  std::optional<Nanos> grace_ends_;  // sync: the quorum is complete
};

}  // namespace sluice::store
