// Class HostedModel is what one reducer has of one model: the shards that it owns or copies, and the deltas
// that wait for a step. The steps of a version are those of docs/design/adr/0022-parameter-service.md.
//
// Any thread. Calls block for the time of a step's arithmetic and transfers, not for other requests.
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
#include <vector>

#include "core/result.h"
#include "store/model/model_layout.h"
#include "store/server/delta_buffers.h"
#include "store/server/memory_budget.h"
#include "store/server/model_counters.h"
#include "store/server/model_record.h"
#include "store/server/peer_links.h"
#include "store/versions/version_files.h"
#include "wire/store_messages.h"

namespace sluice::store {

// The most workers whose last pushes a version names. Beyond, the longest silent ones are forgotten.
inline constexpr uint32_t kMaxWorkers = 1024;

struct StepPush {
  PushIdentity identity;
  float weight = 1;
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
  [[nodiscard]] Result<void> stage(uint32_t shard, PushIdentity identity, DeltaBuffer delta);
  // The last push of each worker that the owned shard's newest version contains.
  [[nodiscard]] std::map<uint64_t, uint64_t> contained(uint32_t shard) const;

  // ---- versions: of a shard that this reducer owns ----
  [[nodiscard]] Result<VersionView> view(uint32_t shard, uint64_t version) const;
  void end_view(VersionView view);
  // kBadSequence: a delta is not staged. kBadView: another reducer owns the shard, or the version before is
  // not the newest. Others: the copy cannot store it.
  [[nodiscard]] Result<void> step(const wire::Step& request, std::span<const StepPush> pushes);
  [[nodiscard]] Result<void> commit(uint32_t shard, uint64_t version);
  // Stores one array of the first version; the last one makes the version prepared, here and at the copy.
  // `request.array` is less than arrays().
  [[nodiscard]] Result<void> install(const wire::Install& request, const DeltaBuffer& values);

  // ---- versions: of a shard that this reducer copies ----
  [[nodiscard]] Result<void> receive_copy(const wire::CopyVersion& request, MessageChannel& from);

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
  // Commits or discards what `files` have prepared in `generation`, and checks the owner's version.
  [[nodiscard]] Result<void> settle(VersionFiles& files, uint32_t shard, const CoordinatedState& state,
                                    uint64_t generation) const;
  [[nodiscard]] bool is_current(const VersionFiles& files, uint32_t shard,
                                const CoordinatedState& state) const;
  [[nodiscard]] Result<void> commit_prepared(Shard& shard, uint32_t index, uint64_t version);
  // Waits until the shard is not busy, and checks that this reducer owns it.
  [[nodiscard]] Result<Shard*> acquire_owned(Lock& lock, uint32_t shard);
  void release(Lock& lock, Shard& shard) noexcept;
  // VersionFiles::begin(), after readers of the free slot have ended.
  [[nodiscard]] Result<VersionWriter> begin(Lock& lock, Shard& shard, uint64_t version, uint64_t generation);
  // Sends the current version first if the copy is new.
  [[nodiscard]] Result<void> supply(Lock& lock, Shard& shard, uint32_t index);
  [[nodiscard]] Result<void> send_to_copy(Shard& shard, uint32_t index, const ShardHolders& holders,
                                          const VersionView& view, bool committed);
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
  CoordinatedState state_;
  bool is_applied_ = true;  // false: a shard was in use when state_ came
  std::map<uint32_t, std::unique_ptr<Shard>> shards_;
  std::map<std::pair<uint32_t, uint64_t>, Delta> staged_;  // by shard and worker
};

}  // namespace sluice::store
