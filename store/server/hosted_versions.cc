// The versions of the shards of a HostedModel: steps, copies, installation.
#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/bytes.h"
#include "store/server/hosted_model.h"
#include "store/server/interleaved_arrays.h"
#include "store/update/update_step.h"

namespace sluice::store {
namespace {

constexpr size_t kIdentityBytes = 16;
// Between two looks at the readers of a slot that a step needs.
constexpr auto kReaderPause = std::chrono::milliseconds(20);
// How long those have that are ended, and other reducers that copy the version.
constexpr Nanos kEndTime = 10 * kSecond;

// The last push of each worker: those of the version before, then those of the step. Equal on all owners.
std::vector<PushIdentity> merged(const VersionView& base, std::span<const StepPush> pushes) {
  std::map<uint64_t, uint64_t> last;
  for (size_t i = 0; i < base.push_count(); ++i) last[base.push(i).worker] = base.push(i).number;
  for (const StepPush& push : pushes) last[push.identity.worker] = push.identity.number;
  std::vector<PushIdentity> all;
  for (const auto& [worker, number] : last) all.push_back({worker, number});
  if (all.size() > kMaxWorkers) {
    // Clients number pushes by the time, so the lowest numbers are the oldest.
    std::ranges::nth_element(all, all.begin() + kMaxWorkers, std::greater(), &PushIdentity::number);
    all.resize(kMaxWorkers);
    std::ranges::sort(all, {}, &PushIdentity::worker);
  }
  return all;
}

}  // namespace

Result<HostedModel::ReadableVersion> HostedModel::view(uint32_t shard, uint64_t version) const {
  const std::scoped_lock lock(mutex_);
  const auto found = shards_.find(shard);
  if (found == shards_.end() || found->second->holders.owner != self_)
    return fail(Errc::kBadView, "this reducer does not own shard " + std::to_string(shard) + " of model \"" +
                                    spec_.name + "\"");
  VersionView view = found->second->files.view(version);
  const auto committed = found->second->files.committed();
  if (!view.valid() || !committed || version > *committed)
    return fail(Errc::kBadView, "version " + std::to_string(version) + " of model \"" + spec_.name +
                                    "\" is not kept; the newest is " +
                                    (committed ? std::to_string(*committed) : "none"));
  const uint64_t steps = view.steps();
  return ReadableVersion{.view = std::move(view), .progress = nullptr, .steps = steps};
}

void HostedModel::end_view(VersionView view) {
  {
    const std::scoped_lock lock(mutex_);
    [[maybe_unused]] const VersionView ends = std::move(view);
  }
  released_.notify_all();
}

Result<VersionWriter> HostedModel::begin(Lock& lock, Shard& shard, uint64_t version, uint64_t generation) {
  if (const auto prepared = shard.files.prepared()) {
    // The version after a prepared one begins only when that is committed, although COMMITTED may be lost.
    const bool is_committed =
        *prepared + 1 == version && shard.files.view(*prepared).generation() == generation;
    const Status s = is_committed ? shard.files.commit(*prepared) : shard.files.discard(*prepared);
    if (!s.ok()) return fail(s.code(), "cannot end version " + std::to_string(*prepared));
  }
  update_progress(shard, true);  // its readers would hold the slot
  VersionWriter writer;
  Nanos give_up = monotonic_now() + kEndTime;
  Status status;
  while ((status = shard.files.begin(version, generation, writer)) == Errc::kWouldBlock) {
    const Nanos now = monotonic_now();
    for (const auto& reader : shard.readers) {
      if (shard.files.view(reader->version()).valid()) continue;  // of another slot
      if (reader->is_late(now)) reader->end();
      if (!reader->has_ended()) give_up = now + kEndTime;
    }
    if (now >= give_up)
      return fail(Errc::kTimeout,
                  "a transfer between reducers holds version files of model \"" + spec_.name + "\"");
    released_.wait_for(lock, kReaderPause);
  }
  if (!status.ok())
    return fail(status.code(), "version " + std::to_string(version) + " of model \"" + spec_.name +
                                   "\" cannot follow version " +
                                   std::to_string(shard.files.committed().value_or(0)));
  return writer;
}

Result<void> HostedModel::step(const wire::Step& request, std::span<const StepPush> pushes) {
  Lock lock(mutex_);
  auto acquired = acquire_owned(lock, request.shard);
  if (!acquired) return tl::unexpected(acquired.error());
  Shard& shard = **acquired;
  const auto end = [&](tl::unexpected<Error> error) -> Result<void> {
    release(lock, shard);
    return error;
  };
  const ShardHolders holders = shard.holders;
  if (request.generation != holders.generation)
    return end(fail(Errc::kBadView, "shard " + std::to_string(request.shard) + " has generation " +
                                        std::to_string(holders.generation) + ", the request " +
                                        std::to_string(request.generation)));
  const std::pair<uint64_t, uint64_t> order{request.revision, request.attempt};
  if (order < shard.last_step)
    return end(fail(Errc::kBadView, "STEP " + std::to_string(request.revision) + "." +
                                        std::to_string(request.attempt) + " comes after " +
                                        std::to_string(shard.last_step.first) + "." +
                                        std::to_string(shard.last_step.second)));
  shard.last_step = order;
  if (request.version <= state_.version)
    return end(fail(Errc::kBadView, "the model is at version " + std::to_string(state_.version)));
  if (shard.files.committed() != request.version - 1 && shard.files.prepared() != request.version - 1)
    return end(fail(Errc::kBadView, "shard " + std::to_string(request.shard) + " is at version " +
                                        std::to_string(shard.files.committed().value_or(0))));
  if (auto supplied = supply(lock, shard, request.shard); !supplied)
    return end(tl::unexpected(supplied.error()));
  auto deltas = find_deltas(lock, request.shard, pushes);
  if (!deltas) return end(tl::unexpected(deltas.error()));
  auto writer = begin(lock, shard, request.version, holders.generation);
  if (!writer) return end(tl::unexpected(writer.error()));
  VersionView base = shard.files.view(request.version - 1);
  if (!base.valid()) {
    *writer = VersionWriter();
    return end(fail(Errc::kBadView, "version " + std::to_string(request.version - 1) + " was not committed"));
  }
  const uint64_t steps = base.steps() + 1;
  shard.progress = std::make_shared<StepProgress>(
      StepProgress{.version = request.version, .steps = steps, .view = writer->view()});
  computed_.notify_all();
  const CopiedVersion content{.version = request.version, .steps = steps, .pushes = merged(base, pushes)};
  auto copying = copy_early(shard, request.shard, holders, content, *deltas);
  const auto abandon = [&](tl::unexpected<Error> error) {
    update_progress(shard, true);
    lock.unlock();
    if (copying.valid()) copying.wait();
    return end(std::move(error));
  };
  if (auto computed = compute(lock, shard, *writer, base, pushes, *deltas); !computed)
    return abandon(tl::unexpected(computed.error()));
  lock.unlock();
  writer->compute_checksums();
  lock.lock();
  [[maybe_unused]] const VersionView base_ends = std::move(base);
  if (const Status s = shard.files.prepare(*writer, steps, content.pushes); !s.ok())
    return abandon(fail(s.code(), "cannot prepare version " + std::to_string(request.version)));
  shard.progress->state = StepProgress::State::kPrepared;
  VersionView made = shard.files.view(request.version);
  lock.unlock();
  auto copied =
      copying.valid() ? copying.get() : send_to_copy(shard, request.shard, holders, made, content, nullptr);
  end_view(std::move(made));
  release(lock, shard);
  return copied;
}

Result<void> HostedModel::compute(Lock& lock, Shard& shard, const VersionWriter& writer,
                                  const VersionView& base, std::span<const StepPush> pushes,
                                  std::span<const std::shared_ptr<ArrivingDelta>> deltas) {
  ConstShardArrays in{};
  ShardArrays out{};
  for (size_t a = 0; a < arrays(); ++a) {
    in[a] = base.array(a).data();
    out[a] = writer.array(a).data();
  }
  std::vector<StagedDelta> values;
  for (size_t i = 0; i < pushes.size(); ++i)
    values.push_back({.values = deltas[i]->values->data(), .weight = pushes[i].weight});
  const UpdateStep update(spec_.rule, base.steps(), values);
  for (uint64_t done = 0; done < layout_.shard_elements();) {
    const auto arrived = wait_arrived(lock, deltas, done);
    if (!arrived) return tl::unexpected(arrived.error());
    lock.unlock();
    update.run(in, out, done, *arrived - done);
    lock.lock();
    shard.progress->elements = done = *arrived;
    computed_.notify_all();
  }
  return {};
}

std::future<Result<void>> HostedModel::copy_early(Shard& shard, uint32_t index, const ShardHolders& holders,
                                                  const CopiedVersion& content,
                                                  std::span<const std::shared_ptr<ArrivingDelta>> deltas) {
  const auto is_arriving = [&](const auto& delta) { return delta->elements < layout_.shard_elements(); };
  if (holders.copy == kNoStore || std::ranges::none_of(deltas, is_arriving)) return {};
  try {
    return std::async(std::launch::async,
                      [this, &shard, index, &holders, &content, progress = shard.progress,
                       view = shard.progress->view.again()]() mutable -> Result<void> {
                        Result<void> copied;
                        try {
                          copied = send_to_copy(shard, index, holders, view, content, progress.get());
                        } catch (const std::exception& e) {
                          copied = fail(Errc::kSystem, std::string("a copy: ") + e.what());
                        }
                        end_view(std::move(view));
                        return copied;
                      });
  } catch (const std::system_error&) {
    return {};  // no thread: it is copied when it is computed
  }
}

Result<void> HostedModel::send_to_copy(Shard& shard, uint32_t index, const ShardHolders& holders,
                                       const VersionView& view, const CopiedVersion& content,
                                       const StepProgress* progress) {
  if (holders.copy == kNoStore) return {};
  std::vector<std::byte> identities(content.pushes.size() * kIdentityBytes);
  for (size_t i = 0; i < content.pushes.size(); ++i) {
    store_le(identities.data() + i * kIdentityBytes, content.pushes[i].worker);
    store_le(identities.data() + i * kIdentityBytes + 8, content.pushes[i].number);
  }
  const InterleavedArrays body(arrays(), layout_.shard_elements() * sizeof(float));
  const wire::CopyVersion message{.model = id_,
                                  .shard = index,
                                  .generation = holders.generation,
                                  .version = content.version,
                                  .steps = content.steps,
                                  .committed = static_cast<uint8_t>(content.is_committed ? 1 : 0),
                                  .pushes = static_cast<uint32_t>(content.pushes.size()),
                                  .bytes = body.bytes()};
  SLUICE_RETURN_IF_ERROR(shard.copy_links.send(holders.copy, message, {identities}));
  const auto fill = [&](uint64_t offset, std::span<std::byte> piece) {
    Status status;
    body.for_parts(offset, piece.size(), [&](size_t a, uint64_t from, uint64_t to, uint64_t bytes) {
      if (!status.ok() || !wait_computed(progress, (from + bytes) / sizeof(float))) {
        status = Errc::kAborted;
      } else {
        std::memcpy(piece.data() + to, std::as_bytes(view.array(a)).data() + from, bytes);
      }
    });
    return status;
  };
  SLUICE_RETURN_IF_ERROR(shard.copy_links.send_pieces(holders.copy, message.bytes, fill));
  // Until the copy is another reducer, because this one does not run. move_copy() is a generation ahead.
  const auto is_over = [&] {
    const std::scoped_lock lock(mutex_);
    const ShardHolders& now = state_.shards[index];
    return is_ending_ || (now.generation >= holders.generation && now != holders);
  };
  auto answer = shard.copy_links.receive<wire::Done>(holders.copy, is_over);
  if (!answer) return tl::unexpected(answer.error());
  counters_->copy_bytes.add(message.bytes);
  return {};
}

HostedModel::CopiedVersion HostedModel::content_of(const VersionView& view, bool is_committed) {
  CopiedVersion content{
      .version = view.version(), .steps = view.steps(), .pushes = {}, .is_committed = is_committed};
  for (size_t i = 0; i < view.push_count(); ++i) content.pushes.push_back(view.push(i));
  return content;
}

// An owner sends the current version before it makes this reducer the copy (move_copy()).
void HostedModel::accept_offer(const wire::CopyVersion& request) {
  if (request.committed == 0) return;
  auto found = shards_.find(request.shard);
  if (found == shards_.end()) {
    auto files = VersionFiles::open(folder_, shape(request.shard), VersionFiles::OnDamage::kDrop);
    if (!files) return;
    found = shards_.emplace(request.shard, std::make_unique<Shard>(std::move(*files), connect_)).first;
    found->second->holders = {.owner = kNoStore, .copy = kNoStore, .generation = 0};
  }
  Shard& shard = *found->second;
  if (shard.is_busy || shard.holders.owner == self_ || request.generation <= shard.holders.generation) return;
  shard.holders = {.owner = kNoStore, .copy = self_, .generation = request.generation};
}

Result<void> HostedModel::receive_copy(const wire::CopyVersion& request, MessageChannel& from) {
  const auto bad = [](Status s) { return fail(s.code(), "the body of COPY_VERSION"); };
  const InterleavedArrays body(arrays(), layout_.shard_elements() * sizeof(float));
  if (request.pushes > kMaxWorkers || request.bytes != body.bytes() || request.shard >= layout_.shards())
    return bad(Errc::kBadLength);
  std::vector<std::byte> identities(request.pushes * kIdentityBytes);
  if (const Status s = from.receive_body(identities); !s.ok()) return bad(s);
  std::vector<PushIdentity> pushes(request.pushes);
  for (size_t i = 0; i < pushes.size(); ++i) {
    pushes[i] = {load_le<uint64_t>(identities.data() + i * kIdentityBytes),
                 load_le<uint64_t>(identities.data() + i * kIdentityBytes + 8)};
  }
  // The body must be read even if the request is refused, because the connection continues.
  const auto refuse = [&](const tl::unexpected<Error>& error) -> Result<void> {
    const Status s =
        from.receive_pieces(request.bytes, [](uint64_t, std::span<const std::byte>) { return Status(); });
    if (!s.ok()) return bad(s);
    return error;
  };
  Lock lock(mutex_);
  accept_offer(request);
  const auto found = shards_.find(request.shard);
  if (found == shards_.end() || found->second->holders.copy != self_ ||
      request.generation != found->second->holders.generation) {
    lock.unlock();
    return refuse(fail(Errc::kBadView, "this reducer has no copy of shard " + std::to_string(request.shard) +
                                           " of generation " + std::to_string(request.generation)));
  }
  Shard& shard = *found->second;
  released_.wait(lock, [&] { return !shard.is_busy; });
  if (shard.files.committed() == request.version) {  // it has come before
    lock.unlock();
    auto refused = refuse(fail(Errc::kOk, ""));
    return refused.error().code == Errc::kOk ? Result<void>() : refused;
  }
  auto writer = begin(lock, shard, request.version, request.generation);
  if (!writer) {
    lock.unlock();
    return refuse(tl::unexpected(writer.error()));
  }
  shard.is_busy = true;
  lock.unlock();
  Status status = from.receive_pieces(request.bytes, [&](uint64_t offset, std::span<const std::byte> piece) {
    body.for_parts(offset, piece.size(), [&](size_t a, uint64_t to, uint64_t at, uint64_t bytes) {
      std::memcpy(std::as_writable_bytes(writer->array(a)).data() + to, piece.data() + at, bytes);
    });
    return Status();
  });
  if (status.ok()) writer->compute_checksums();
  lock.lock();
  if (!status.ok()) {
    *writer = VersionWriter();
    release(lock, shard);
    return bad(status);
  }
  status = shard.files.prepare(*writer, request.steps, pushes);
  if (status.ok() && request.committed != 0) status = shard.files.commit(request.version);
  release(lock, shard);
  if (!status.ok())
    return fail(status.code(), "cannot store the copy of version " + std::to_string(request.version));
  return {};
}

Result<void> HostedModel::commit_prepared(Shard& shard, uint32_t index, uint64_t version) {
  if (const Status status = shard.files.commit(version); !status.ok())
    return fail(Errc::kBadView, "version " + std::to_string(version) + " of shard " + std::to_string(index) +
                                    " is not prepared");
  counters_->set_version(version);
  update_progress(shard, false);
  if (shard.holders.owner == self_) drop_contained(index, shard.files.view(version));
  return {};
}

// The copy is not told: it commits when the next version comes, or when it reads the model's state. An owner
// that waited for its copy could wait for ever, because the two may just change their roles.
Result<void> HostedModel::commit(uint32_t shard, uint64_t version) {
  Lock lock(mutex_);
  const auto found = shards_.find(shard);
  if (found == shards_.end())
    return fail(Errc::kBadView, "this reducer does not have shard " + std::to_string(shard));
  Shard& s = *found->second;
  released_.wait(lock, [&] { return !s.is_busy; });
  if (s.files.committed() == version) return {};
  return commit_prepared(s, shard, version);
}

Result<void> HostedModel::install(const wire::Install& request, const DeltaBuffer& values) {
  Lock lock(mutex_);
  auto acquired = acquire_owned(lock, request.shard);
  if (!acquired) return tl::unexpected(acquired.error());
  Shard& shard = **acquired;
  const auto end = [&](tl::unexpected<Error> error) -> Result<void> {
    shard.installing = VersionWriter();
    release(lock, shard);
    return error;
  };
  if (shard.files.committed())
    return end(fail(Errc::kMismatch, "model \"" + spec_.name + "\" has been started"));
  if (request.array == 0) {
    shard.installing = VersionWriter();
    auto writer = begin(lock, shard, request.version, shard.holders.generation);
    if (!writer) return end(tl::unexpected(writer.error()));
    shard.installing = std::move(*writer);
  }
  if (!shard.installing.valid())
    return end(fail(Errc::kUnexpectedMessage, "INSTALL does not begin with array 0"));
  lock.unlock();
  std::ranges::copy(*values, shard.installing.array(request.array).begin());
  if (request.array + 1U == arrays()) shard.installing.compute_checksums();
  lock.lock();
  if (request.array + 1U < arrays()) {
    release(lock, shard);
    return {};
  }
  if (const Status s = shard.files.prepare(shard.installing, request.steps, {}); !s.ok())
    return end(fail(s.code(), "cannot store version " + std::to_string(request.version)));
  VersionView made = shard.files.view(request.version);
  const ShardHolders holders = shard.holders;
  lock.unlock();
  auto copied = send_to_copy(shard, request.shard, holders, made, content_of(made, false), nullptr);
  end_view(std::move(made));
  release(lock, shard);
  return copied;
}

}  // namespace sluice::store
