// push_pull() of class StoreClient: a push and an early pull at the same time.
#include <algorithm>
#include <exception>

#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"
#include "gpu_client/store/store_client.h"

namespace sluice::store_client {
namespace {

// How long an early pull waits at an owner before it looks whether it is over.
constexpr Nanos kEarlyWait = 500 * kMillisecond;
// After the push has its answer, the version is committed, and an owner that runs says so at once.
constexpr Nanos kCommitTime = 5 * kSecond;

// A thread that ends before what it uses, also after an exception.
struct Puller {
  std::atomic<Nanos>& over_at;
  std::thread thread{};
  ~Puller() {
    over_at.store(0);
    if (thread.joinable()) thread.join();
  }
};

}  // namespace

Result<uint64_t> StoreClient::pull_early(const OpenModel& model, void* const* tensors, uint64_t version,
                                         wire::DType dtype, const std::atomic<Nanos>& over_at,
                                         Nanos deadline) {
  const auto is_over = [&] { return monotonic_now() >= over_at.load(); };
  const auto pull_shard = [&](uint32_t shard, StoreConnection& owner) -> Result<void> {
    const auto use = [&](uint64_t offset, std::span<const std::byte> piece) {
      return model.shape->bodies[shard].scatter(tensors, dtype, offset, piece);
    };
    for (;;) {
      const Nanos wait = std::min(wait_time(deadline), kEarlyWait);
      const wire::Pull request{.model = model.id,
                               .shard = shard,
                               .version = version,
                               .dtype = dtype,
                               .early = 1,
                               .timeout_ms = wait_ms(wait)};
      auto pulled = pull_array(owner, model, request, use);
      if (pulled) break;
      const bool is_waiting = owner.valid() && pulled.error().code == Errc::kTimeout && !is_over();
      if (!is_waiting || monotonic_now() >= deadline) return tl::unexpected(pulled.error());
    }
    // Until the slowest shard is there, and the step is committed.
    while (!owner.has_answer(monotonic_now() + kEarlyWait)) {
      if (is_over() || monotonic_now() >= deadline) return owner.give_up("waiting for the commit");
    }
    SLUICE_RETURN_IF_ERROR(owner.receive<wire::Done>(prompt_deadline()));
    return {};
  };
  SLUICE_RETURN_IF_ERROR(pulls_.run(model, deadline, pull_shard));
  return version;
}

Result<wire::PushAnswer> StoreClient::push_pull(const PushRequest& request, void* const* tensors,
                                                wire::DType dtype, Nanos timeout) {
  SLUICE_ASSIGN_OR_RETURN(model, current_model());
  SLUICE_RETURN_IF_ERROR(check_push(*model, request));
  SLUICE_RETURN_IF_ERROR(check_pointers(model->shape->spec, tensors, "tensors"));
  for (size_t i = 0; i < model->shape->spec.tensors.size(); ++i) {
    if (request.deltas[i] == tensors[i])
      return invalid("deltas and tensors have the same memory for tensor \"" +
                     model->shape->spec.tensors[i].name + "\"");
  }
  const std::scoped_lock lock(pushes_.mutex, pulls_.mutex);
  const Nanos deadline = monotonic_now() + timeout;
  const bool is_early = model->shape->spec.mode.kind == store::StepKind::kSync;

  std::atomic<Nanos> over_at{INT64_MAX};  // when the early pull gives up
  Result<uint64_t> pulled = fail(Errc::kTimeout, "no early pull");
  Puller puller{over_at};
  if (is_early) {
    SLUICE_ASSIGN_OR_RETURN(started, engine::start_thread("sluice-early", [&] {
                              try {
                                pulled =
                                    pull_early(*model, tensors, request.base + 1, dtype, over_at, deadline);
                              } catch (const std::exception& e) {
                                pulled = fail(Errc::kSystem, std::string("an early pull: ") + e.what());
                              }
                            }));
    puller.thread = std::move(started);
  }
  auto answer = push(model, request, is_early, deadline);
  over_at.store(answer ? monotonic_now() + kCommitTime : 0);
  if (puller.thread.joinable()) puller.thread.join();
  if (!answer) return answer;
  // Another version than that of the step, for example because the push is late, or an interrupted pull.
  if (!pulled || *pulled < answer->version) {
    // With the owners that the push has found, unless another thread has opened another model.
    SLUICE_ASSIGN_OR_RETURN(now, current_model());
    pulled = pull(now->id == model->id ? now : model, tensors, answer->version, dtype, deadline);
  }
  if (!pulled) {
    // The caller may repeat the call; the push has counted already.
    unanswered_ = checksum(*model, request);
    return tl::unexpected(pulled.error());
  }
  answer->version = *pulled;
  return answer;
}

}  // namespace sluice::store_client
