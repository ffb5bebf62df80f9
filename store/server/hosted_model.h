// Class HostedModel is what one reducer has of one model: the shards that it owns or copies, and the deltas
// that wait for a step. The steps of a version are those of docs/design/adr/0022-parameter-service.md.
//
// Any thread. Calls block for the time of a step's arithmetic and transfers, not for other requests.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "store/model/model_layout.h"
#include "store/server/delta_buffers.h"
#include "store/server/limits/version_reader.h"
#include "store/server/memory_budget.h"
#include "store/server/model_counters.h"
#include "store/server/model_record.h"
#include "store/server/peer_links.h"
#include "store/server/step_progress.h"
#include "store/versions/version_files.h"
#include "wire/store_messages.h"

namespace sluice::store {

// The most workers whose last pushes a version names. Beyond, the longest silent ones are forgotten.
inline constexpr uint32_t kMaxWorkers = 1024;

struct StepPush {
  PushIdentity identity;
  float weight = 1;
  bool is_early = false;  // its delta may still be on its way
};

class HostedModel {
 public:
  // `folder` exists. The model's memory counts against `budget` from now on, even beyond its limit.
  [[nodiscard]] static Result<std::shared_ptr<HostedModel>> open(std::string folder, StoreId self,
                                                                 const ModelRecord& record,
                                                                 const CoordinatedState& state,
                                                                 std::shared_ptr<MemoryBudget> budget,
                                                                 ConnectToStore connect);
  HostedModel(const HostedModel&) = delete;
  HostedModel& operator=(const HostedModel&) = delete;
  ~HostedModel();

  [[nodiscard]] uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  [[nodiscard]] const ModelSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const ModelLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] size_t arrays() const noexcept { return array_count(spec_.rule.kind); }
  [[nodiscard]] const std::shared_ptr<ModelCounters>& counters() const noexcept { return counters_; }
  [[nodiscard]] CoordinatedState state() const;
  [[nodiscard]] bool is_owner(uint32_t shard) const;
  // Whether every shard has its role in `state`, or in a newer one.
  [[nodiscard]] bool has_applied(const CoordinatedState& state) const;

  // Takes the roles of a newer state. A shard commits the version that it has prepared if that is the current
  // one; COMMITTED may be lost with a leader. One that changes hands discards it otherwise. Does not wait: a
  // shard that is in use keeps its role, and the next call with this state changes it.
  [[nodiscard]] Result<void> apply(const CoordinatedState& state);
  // Whether all owned shards have the version, committed or not.
  [[nodiscard]] bool has_version(uint64_t version) const;
  // Whether the shard here has the version of `state`, so that this reducer may become its owner.
  [[nodiscard]] bool has_current(uint32_t shard, const CoordinatedState& state) const;
  // Gives an owned shard another copy: sends it the current version, then calls `agree` with the new holders,
  // which must write them to the coordinator. No step is made meanwhile. False: not now.
  [[nodiscard]] Result<bool> move_copy(uint32_t shard, StoreId to,
                                       const std::function<Result<bool>(const ShardHolders&)>& agree);
  // Sends the current version of owned shards to copies that do not have it yet.
  [[nodiscard]] Result<void> supply_copies();

  // ---- deltas ----
  // An array of shard_elements(); its content is undefined. Waits while too many pushes wait for a step, then
  // forgets one that has waited long: its worker gets kNotStaged, and sends it again if it still runs.
  [[nodiscard]] Result<DeltaBuffer> take_buffer();
  // `delta` has arrived completely, and has been announced.
  [[nodiscard]] Result<void> stage(uint32_t shard, PushIdentity identity, ArrivingDelta& delta);
  // The last push of each worker that the owned shard's newest version contains.
  [[nodiscard]] std::map<uint64_t, uint64_t> contained(uint32_t shard) const;

  // ---- versions: of a shard that this reducer owns ----
  struct ReadableVersion {
    VersionView view;  // for end_view()
    // Of a version that is being made: what may be read. Null: it is committed.
    std::shared_ptr<const StepProgress> progress;
    uint64_t steps = 0;
  };
  // kBadView: another reducer owns the shard, or the version is not committed, or no longer kept.
  [[nodiscard]] Result<ReadableVersion> view(uint32_t shard, uint64_t version) const;
  void end_view(VersionView view);
  // Steps that need the place of the version which the reader has a view of may end it. end_reader() comes
  // with or after end_view().
  void begin_reader(uint32_t shard, const std::shared_ptr<VersionReader>& reader);
  void end_reader(uint32_t shard, const std::shared_ptr<VersionReader>& reader);
  // kBadSequence: a delta is not staged. kBadView: another reducer owns the shard, or the version before is
  // not the newest. Others: the copy cannot store it.
  [[nodiscard]] Result<void> step(const wire::Step& request, std::span<const StepPush> pushes);
  [[nodiscard]] Result<void> commit(uint32_t shard, uint64_t version);
  // Stores one array of the first version; the last one makes the version prepared, here and at the copy.
  // `request.array` is less than arrays().
  [[nodiscard]] Result<void> install(const wire::Install& request, const DeltaBuffer& values);

  // ---- versions: of a shard that this reducer copies ----
  [[nodiscard]] Result<void> receive_copy(const wire::CopyVersion& request, MessageChannel& from);

  // ---- a step while its deltas arrive, and while it is computed: hosted_progress.cc ----
  // Announces a delta that arrives, so that a step may use it; end_delta() ends that. stage() makes it
  // complete.
  [[nodiscard]] std::shared_ptr<ArrivingDelta> begin_delta(uint32_t shard, PushIdentity identity,
                                                           DeltaBuffer values);
  void advance_delta(ArrivingDelta& delta, uint64_t elements);
  void end_delta(uint32_t shard, uint64_t worker, const std::shared_ptr<ArrivingDelta>& delta);
  // Waits until the version is committed or being made. kTimeout; kBadView: as view().
  [[nodiscard]] Result<ReadableVersion> follow(uint32_t shard, uint64_t version, Nanos deadline);
  // Blocks until so many elements are computed; null: all are. False: the attempt is abandoned.
  [[nodiscard]] bool wait_computed(const StepProgress* progress, uint64_t elements);
  // False: the attempt is abandoned, or not committed before the deadline.
  [[nodiscard]] bool wait_committed(const StepProgress& progress, Nanos deadline);

  // Ends all waits of these functions and of steps for deltas. Any thread.
  void end() noexcept;
  // Deletes all files. Nothing else may be called afterwards, except by requests in progress.
  void remove();

 private:
  struct Shard {
    explicit Shard(VersionFiles opened, ConnectToStore connect)
        : files(std::move(opened)), copy_links(std::move(connect)) {}
    VersionFiles files;
    ShardHolders holders;
    VersionWriter installing;
    bool is_busy = false;       // a step, copy or installation is in progress without the lock
    bool has_new_copy = false;  // which does not have the current version yet
    PeerLinks copy_links;       // of the one that is busy
    std::set<std::shared_ptr<VersionReader>> readers;
    std::shared_ptr<StepProgress> progress;  // of the attempt that is not committed or abandoned; may be null
    // Of the newest STEP: the state's revision, then the leader's attempt.
    std::pair<uint64_t, uint64_t> last_step{0, 0};
  };
  struct Delta {
    uint64_t number = 0;
    DeltaBuffer values;
    Nanos staged_at = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  HostedModel(std::string folder, StoreId self, const ModelRecord& record, const CoordinatedState& state,
              std::shared_ptr<MemoryBudget> budget, ConnectToStore connect);
  // Forgets the delta that has waited longest, if that is longer than kPushTime.
  [[nodiscard]] bool forget_oldest_delta();
  [[nodiscard]] ShardShape shape(uint32_t shard) const;
  [[nodiscard]] Result<void> open_shard(uint32_t shard, const CoordinatedState& state);
  // Commits or discards what `files` have prepared, and checks the owner's version.
  [[nodiscard]] Result<void> settle(VersionFiles& files, uint32_t shard, const CoordinatedState& state) const;
  // False: the shard is in use.
  [[nodiscard]] Result<bool> apply_to_shard(uint32_t index, const CoordinatedState& state);
  [[nodiscard]] bool is_current(const VersionFiles& files, uint32_t shard,
                                const CoordinatedState& state) const;
  [[nodiscard]] Result<void> commit_prepared(Shard& shard, uint32_t index, uint64_t version);
  // Waits until the shard is not busy, and checks that this reducer owns it.
  [[nodiscard]] Result<Shard*> acquire_owned(Lock& lock, uint32_t shard);
  void release(Lock& lock, Shard& shard) noexcept;
  // The delta of a push, staged or arriving; null if neither.
  [[nodiscard]] std::shared_ptr<ArrivingDelta> find_delta(uint32_t shard, PushIdentity identity) const;
  // Those of a step. Waits for the begin of early ones. kBadSequence: one is not staged, or does not begin.
  [[nodiscard]] Result<std::vector<std::shared_ptr<ArrivingDelta>>> find_deltas(
      Lock& lock, uint32_t shard, std::span<const StepPush> pushes);
  // Waits until all deltas have more than `done` elements; returns how many. kBadSequence: one is lost.
  [[nodiscard]] Result<uint64_t> wait_arrived(Lock& lock,
                                              std::span<const std::shared_ptr<ArrivingDelta>> deltas,
                                              uint64_t done);
  // Computes all elements as their deltas arrive. Called with the lock, and returns with it.
  [[nodiscard]] Result<void> compute(Lock& lock, Shard& shard, const VersionWriter& writer,
                                     const VersionView& base, std::span<const StepPush> pushes,
                                     std::span<const std::shared_ptr<ArrivingDelta>> deltas);
  // After a change of the shard's versions. `is_over`: an attempt that is not committed by now is abandoned.
  void update_progress(Shard& shard, bool is_over);
  // VersionFiles::begin(), after readers of the free slot have ended, late ones by force.
  [[nodiscard]] Result<VersionWriter> begin(Lock& lock, Shard& shard, uint64_t version, uint64_t generation);
  // Sends the current version first if the copy is new.
  [[nodiscard]] Result<void> supply(Lock& lock, Shard& shard, uint32_t index);
  // What a copy gets of a version beside its values.
  struct CopiedVersion {
    uint64_t version = 0;
    uint64_t steps = 0;
    std::vector<PushIdentity> pushes;
    bool is_committed = false;
  };
  [[nodiscard]] static CopiedVersion content_of(const VersionView& view, bool is_committed);
  // `progress`: what of the view may be read, and is sent as it is computed; null: all.
  [[nodiscard]] Result<void> send_to_copy(Shard& shard, uint32_t index, const ShardHolders& holders,
                                          const VersionView& view, const CopiedVersion& content,
                                          const StepProgress* progress);
  // Does so on a thread while the deltas of a step arrive. Not valid(): they are there, or there is no copy.
  [[nodiscard]] std::future<Result<void>> copy_early(Shard& shard, uint32_t index,
                                                     const ShardHolders& holders,
                                                     const CopiedVersion& content,
                                                     std::span<const std::shared_ptr<ArrivingDelta>> deltas);
  void accept_offer(const wire::CopyVersion& request);
  // Forgets the deltas that no later step can contain.
  void drop_contained(uint32_t shard, const VersionView& view);
  // Keep the counters up to date after a change of the shards, or of staged_.
  void count_shards() noexcept;
  void count_staged() noexcept;

  const std::string folder_;
  const StoreId self_;
  const uint64_t id_;
  const std::string job_;
  const ModelSpec spec_;
  const ModelLayout layout_;
  const wire::Digest fingerprint_;
  const ConnectToStore connect_;
  const std::shared_ptr<ModelCounters> counters_;
  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<DeltaBuffers> buffers_;

  mutable std::mutex mutex_;
  std::condition_variable released_;  // a shard is not busy, or a view has ended
  std::condition_variable arrived_;   // values of a delta, or its end
  std::condition_variable computed_;  // values of a version, its commit, or its end
  bool is_ending_ = false;
  CoordinatedState state_;
  bool is_applied_ = true;  // false: a shard was in use when state_ came
  std::map<uint32_t, std::unique_ptr<Shard>> shards_;
  std::map<std::pair<uint32_t, uint64_t>, Delta> staged_;                             // by shard and worker
  std::map<std::pair<uint32_t, uint64_t>, std::shared_ptr<ArrivingDelta>> arriving_;  // in the same way
};

}  // namespace sluice::store
