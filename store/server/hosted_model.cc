#include "store/server/hosted_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/clock.h"
#include "store/model/memory_needed.h"

namespace sluice::store {
namespace {

// How long a push waits for memory before it is refused, and how long others' deltas are kept meanwhile.
constexpr Nanos kBufferTime = 3 * kSecond, kPushTime = 60 * kSecond;

}  // namespace

HostedModel::HostedModel(std::string folder, StoreId self, const ModelRecord& record,
                         const CoordinatedState& state, std::shared_ptr<MemoryBudget> budget,
                         ConnectToStore connect)
    : folder_(std::move(folder)),
      self_(self),
      id_(record.id),
      job_(record.job),
      spec_(record.spec),
      layout_(record.spec, static_cast<uint32_t>(state.shards.size())),
      fingerprint_(fingerprint(record.spec)),
      connect_(std::move(connect)),
      counters_(std::make_shared<ModelCounters>(spec_, layout_)),
      budget_(std::move(budget)),
      buffers_(std::make_shared<DeltaBuffers>(layout_.shard_elements(),
                                              std::max(spec_.mode.quorum, kExpectedWorkers), budget_)),
      state_(state) {
  budget_->add(counters_->memory_bytes);
}

HostedModel::~HostedModel() {
  budget_->subtract(counters_->memory_bytes);
}

Result<std::shared_ptr<HostedModel>> HostedModel::open(std::string folder, StoreId self,
                                                       const ModelRecord& record,
                                                       const CoordinatedState& state,
                                                       std::shared_ptr<MemoryBudget> budget,
                                                       ConnectToStore connect) {
  std::shared_ptr<HostedModel> model(
      new HostedModel(std::move(folder), self, record, state, std::move(budget), std::move(connect)));
  for (uint32_t i = 0; i < state.shards.size(); ++i) SLUICE_RETURN_IF_ERROR(model->open_shard(i, state));
  model->count_shards();
  return model;
}

void HostedModel::count_shards() noexcept {
  counters_->owned.set(static_cast<uint64_t>(std::ranges::count(state_.shards, self_, &ShardHolders::owner)));
  counters_->copied.set(static_cast<uint64_t>(std::ranges::count(state_.shards, self_, &ShardHolders::copy)));
  counters_->leads.set(state_.is_started && state_.shards[0].owner == self_ ? 1 : 0);
  counters_->disk_bytes.set(shards_.size() * (spec_.versions + 1) * shape(0).file_bytes());
  counters_->set_version(state_.version);
}

void HostedModel::count_staged() noexcept {
  counters_->staged.set(staged_.size());
  counters_->staged_bytes.set(staged_.size() * layout_.shard_elements() * sizeof(float));
}

ShardShape HostedModel::shape(uint32_t shard) const {
  return {.fingerprint = fingerprint_,
          .shard = shard,
          .arrays = static_cast<uint32_t>(arrays()),
          .elements = layout_.shard_elements(),
          .max_pushes = kMaxWorkers,
          .kept = spec_.versions};
}

Result<void> HostedModel::open_shard(uint32_t shard, const CoordinatedState& state) {
  const ShardHolders& holders = state.shards[shard];
  if (holders.owner != self_ && holders.copy != self_) return {};
  const auto on_damage =
      state.shards.size() > 1 ? VersionFiles::OnDamage::kDrop : VersionFiles::OnDamage::kRefuse;
  auto files = VersionFiles::open(folder_, shape(shard), on_damage);
  if (!files) return tl::unexpected(files.error());
  SLUICE_RETURN_IF_ERROR(settle(*files, shard, state));
  auto opened = std::make_unique<Shard>(std::move(*files), connect_);
  opened->holders = holders;
  opened->last_step = {static_cast<uint64_t>(state.revision), 0};
  shards_[shard] = std::move(opened);
  return {};
}

// A prepared version of an earlier generation may have been made again with other pushes. Not if this reducer
// has held the shard ever since: every holder of a generation stores each version that is made in it. So a
// version of the generation before is the current one if this reducer is a holder now.
Result<void> HostedModel::settle(VersionFiles& files, uint32_t shard, const CoordinatedState& state) const {
  const ShardHolders& now = state.shards[shard];
  if (const auto prepared = files.prepared(); prepared && state.is_started) {
    const uint64_t made = files.view(*prepared).generation();
    const bool is_holder = now.owner == self_ || now.copy == self_;
    const bool is_next =
        *prepared == state.version + 1 && made == now.generation;  // it may still be committed
    const bool is_current =
        *prepared == state.version && (made == now.generation || (is_holder && made + 1 == now.generation));
    Status s;
    if (is_current) {
      s = files.commit(*prepared);
    } else if (!is_next) {
      s = files.discard(*prepared);
    }
    if (!s.ok()) return fail(s.code(), folder_ + ": cannot recover shard " + std::to_string(shard));
  }
  const auto found = files.committed();
  if (now.owner != self_ || !state.is_started || found == state.version) return {};
  return fail(Errc::kMismatch, folder_ + ": shard " + std::to_string(shard) + " has version " +
                                   (found ? std::to_string(*found) : "none") +
                                   ", and the model is at version " + std::to_string(state.version));
}

// Whether `files` have prepared the version of `state`. Only the last attempt at a version is committed, and
// each attempt prepares it anew.
bool HostedModel::is_current(const VersionFiles& files, uint32_t shard, const CoordinatedState& state) const {
  return state.is_started && files.prepared() == state.version &&
         files.view(state.version).generation() == state.shards[shard].generation;
}

CoordinatedState HostedModel::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

bool HostedModel::is_owner(uint32_t shard) const {
  const std::scoped_lock lock(mutex_);
  return shard < state_.shards.size() && state_.shards[shard].owner == self_;
}

bool HostedModel::has_applied(const CoordinatedState& state) const {
  const std::scoped_lock lock(mutex_);
  return state_.revision >= state.revision && is_applied_;
}

void HostedModel::release(Lock& lock, Shard& shard) noexcept {
  if (!lock.owns_lock()) lock.lock();
  shard.is_busy = false;
  released_.notify_all();
}

Result<HostedModel::Shard*> HostedModel::acquire_owned(Lock& lock, uint32_t shard) {
  const auto found = shards_.find(shard);
  if (found == shards_.end() || found->second->holders.owner != self_)
    return fail(Errc::kBadView, "this reducer does not own shard " + std::to_string(shard) + " of model \"" +
                                    spec_.name + "\"");
  Shard& s = *found->second;
  released_.wait(lock, [&] { return !s.is_busy; });
  if (s.holders.owner != self_)
    return fail(Errc::kBadView, "this reducer no longer owns shard " + std::to_string(shard));
  s.is_busy = true;
  return &s;
}

// Shards are never removed from the map while the model is open, so that pointers stay valid: one that moved
// away keeps its files until the model is closed.
Result<void> HostedModel::apply(const CoordinatedState& state) {
  const std::scoped_lock lock(mutex_);
  if (state.revision < state_.revision || (state.revision == state_.revision && is_applied_)) return {};
  is_applied_ = false;
  bool is_complete = true;
  Result<void> result;  // the first error; the other shards work on
  for (uint32_t i = 0; i < state.shards.size(); ++i) {
    auto applied = apply_to_shard(i, state);
    is_complete = is_complete && applied && *applied;
    if (!applied && result) result = tl::unexpected(applied.error());
  }
  state_ = state;
  is_applied_ = is_complete;
  count_shards();
  return result;
}

Result<bool> HostedModel::apply_to_shard(uint32_t index, const CoordinatedState& state) {
  const ShardHolders now = state.shards[index];
  const auto found = shards_.find(index);
  if (found == shards_.end()) {
    SLUICE_RETURN_IF_ERROR(open_shard(index, state));
    const auto opened = shards_.find(index);
    if (opened != shards_.end()) opened->second->has_new_copy = now.owner == self_;
    return true;
  }
  Shard& shard = *found->second;
  const bool is_committed = is_current(shard.files, index, state);
  if (shard.holders == now && !is_committed) return true;
  if (shard.is_busy) return false;
  if (shard.holders == now) {
    SLUICE_RETURN_IF_ERROR(commit_prepared(shard, index, state.version));
    return true;
  }
  SLUICE_RETURN_IF_ERROR(settle(shard.files, index, state));
  update_progress(shard, true);
  shard.installing = VersionWriter();  // of a creator that has to begin again
  shard.has_new_copy = now.owner == self_ && now.copy != kNoStore && state.is_started;
  shard.holders = now;
  return true;
}

bool HostedModel::has_version(uint64_t version) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::all_of(shards_, [&](const auto& entry) {
    const VersionFiles& files = entry.second->files;
    return entry.second->holders.owner != self_ || files.prepared() == version ||
           files.committed() == version;
  });
}

bool HostedModel::has_current(uint32_t shard, const CoordinatedState& state) const {
  const std::scoped_lock lock(mutex_);
  const auto found = shards_.find(shard);
  if (found == shards_.end()) return false;
  const VersionFiles& files = found->second->files;
  return !state.is_started || files.committed() == state.version || is_current(files, shard, state);
}

Result<void> HostedModel::supply(Lock& lock, Shard& shard, uint32_t index) {
  if (!shard.has_new_copy || shard.holders.copy == kNoStore || !shard.files.committed()) return {};
  const ShardHolders holders = shard.holders;
  VersionView view = shard.files.view(*shard.files.committed());
  lock.unlock();
  auto sent = send_to_copy(shard, index, holders, view, content_of(view, true), nullptr);
  end_view(std::move(view));
  lock.lock();
  if (sent) shard.has_new_copy = false;
  return sent;
}

Result<bool> HostedModel::move_copy(uint32_t index, StoreId to,
                                    const std::function<Result<bool>(const ShardHolders&)>& agree) {
  Lock lock(mutex_);
  const auto found = shards_.find(index);
  if (found == shards_.end()) return false;
  Shard& shard = *found->second;
  // A prepared version may become current at any time.
  if (shard.is_busy || shard.holders.owner != self_ || shard.files.prepared() || !shard.files.committed())
    return false;
  const ShardHolders next{.owner = self_, .copy = to, .generation = shard.holders.generation + 1};
  shard.is_busy = true;
  VersionView view = shard.files.view(*shard.files.committed());
  lock.unlock();
  auto sent = send_to_copy(shard, index, next, view, content_of(view, true), nullptr);
  end_view(std::move(view));
  Result<bool> agreed = false;
  if (sent) agreed = agree(next);
  lock.lock();
  if (agreed && *agreed) {
    shard.holders = next;
    shard.has_new_copy = false;
  }
  release(lock, shard);
  if (!sent) return tl::unexpected(sent.error());
  return agreed;
}

Result<void> HostedModel::supply_copies() {
  Lock lock(mutex_);
  for (const auto& [index, shard] : shards_) {
    if (!shard->has_new_copy || shard->holders.owner != self_ || shard->is_busy) continue;
    shard->is_busy = true;
    auto sent = supply(lock, *shard, index);
    release(lock, *shard);
    if (!sent) return sent;
  }
  return {};
}

// ---- deltas ----

Result<DeltaBuffer> HostedModel::take_buffer() {
  const auto owned = static_cast<uint32_t>(counters_->owned.get());
  auto buffer = buffers_->take(owned, monotonic_now() + kBufferTime);
  if (buffer || !forget_oldest_delta()) return buffer;
  return buffers_->take(owned, monotonic_now());
}

bool HostedModel::forget_oldest_delta() {
  const std::scoped_lock lock(mutex_);
  const auto oldest =
      std::ranges::min_element(staged_, {}, [](const auto& entry) { return entry.second.staged_at; });
  if (oldest == staged_.end() || oldest->second.staged_at + kPushTime > monotonic_now()) return false;
  staged_.erase(oldest);
  count_staged();
  return true;
}

Result<void> HostedModel::stage(uint32_t shard, PushIdentity identity, ArrivingDelta& delta) {
  const std::scoped_lock lock(mutex_);
  const auto found = shards_.find(shard);
  if (found == shards_.end() || found->second->holders.owner != self_)
    return fail(Errc::kBadView, "this reducer does not own shard " + std::to_string(shard) + " of model \"" +
                                    spec_.name + "\"");
  auto [at, is_new] = staged_.try_emplace({shard, identity.worker});
  if (is_new && staged_.size() > size_t{kMaxWorkers} * shards_.size()) {
    staged_.erase(at);
    return fail(Errc::kTooMany,
                "more than " + std::to_string(kMaxWorkers) + " workers push to model \"" + spec_.name + "\"");
  }
  if (!is_new && identity.number < at->second.number) return {};  // of an attempt that was given up
  at->second = {identity.number, delta.values, monotonic_now()};
  count_staged();
  delta.elements = layout_.shard_elements();
  arrived_.notify_all();
  return {};
}

std::map<uint64_t, uint64_t> HostedModel::contained(uint32_t shard) const {
  std::map<uint64_t, uint64_t> pushes;
  const std::scoped_lock lock(mutex_);
  const auto found = shards_.find(shard);
  if (found == shards_.end() || !found->second->files.committed()) return pushes;
  const VersionView view = found->second->files.view(*found->second->files.committed());
  for (size_t i = 0; i < view.push_count(); ++i) pushes[view.push(i).worker] = view.push(i).number;
  return pushes;
}

void HostedModel::drop_contained(uint32_t shard, const VersionView& view) {
  // In sync mode all others are based on the version before: late.
  if (spec_.mode.kind == StepKind::kSync)
    std::erase_if(staged_, [&](const auto& entry) { return entry.first.first == shard; });
  for (size_t i = 0; i < view.push_count(); ++i) {
    const auto found = staged_.find({shard, view.push(i).worker});
    if (found == staged_.end() || found->second.number > view.push(i).number) continue;
    staged_.erase(found);
  }
  count_staged();
}

void HostedModel::remove() {
  end();
  Lock lock(mutex_);
  for (auto& [index, shard] : shards_) {
    Shard& s = *shard;
    released_.wait(lock, [&s] { return !s.is_busy; });
    static_cast<void>(VersionFiles::remove(folder_, shape(index)));
  }
  std::error_code ignored;
  std::filesystem::remove(folder_, ignored);
}

}  // namespace sluice::store
