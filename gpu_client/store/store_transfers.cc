// Push and pull of class StoreClient.
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "config/sizes.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/float_bits.h"
#include "gpu_client/store/even_pace.h"
#include "gpu_client/store/store_client.h"

namespace sluice::store_client {
namespace {

using wire::PushOutcome;

// Numbers of pushes are times: a worker that restarts with the same identity continues behind its last
// number, and reducers forget the worker whose last push is the oldest.
uint64_t number_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count());
}

// How far a transfer of an early push may lead: a part of all, at least what short pauses of others need.
constexpr uint64_t kLeadFraction = 32, kMinLead = kMiB / 2;

}  // namespace

Result<ConnectionCache::Borrowed> StoreClient::send_push_step(const OpenModel& model,
                                                              const PushRequest& request, uint64_t number,
                                                              bool is_early, Nanos deadline) {
  SLUICE_ASSIGN_OR_RETURN(leader, pushes_.leader(model, deadline));
  const wire::PushStep step{.model = model.id,
                            .worker = options_.worker,
                            .number = number,
                            .base = request.base,
                            .weight_bits = bits_of(request.weight),
                            .timeout_ms = wait_ms(wait_time(deadline)),
                            .early = static_cast<uint8_t>(is_early ? 1 : 0)};
  SLUICE_RETURN_IF_ERROR(leader->send(step, prompt_deadline()));
  return std::move(leader);
}

Result<wire::PushAnswer> StoreClient::push_once(const OpenModel& model, const PushRequest& request,
                                                uint64_t number, bool is_early, Nanos deadline) {
  const uint64_t bytes = model.shape->body_bytes(request.dtype);
  EvenPace pace(model.shards(), std::max(bytes / kLeadFraction, kMinLead));
  const auto stage = [&](uint32_t shard, StoreConnection& owner) -> Result<void> {
    const wire::Push push{.model = model.id,
                          .shard = shard,
                          .worker = options_.worker,
                          .number = number,
                          .base = request.base,
                          .dtype = request.dtype,
                          .bytes = bytes};
    SLUICE_RETURN_IF_ERROR(owner.send(push, prompt_deadline()));
    const ShardBody& body = model.shape->bodies[shard];
    const auto fill = [&](uint64_t offset, std::span<std::byte> piece) {
      if (is_early) pace.wait(shard, offset);
      body.gather(request.deltas, request.dtype, offset, piece);
      return Status();
    };
    {
      const EvenPace::Ended ended(pace, shard);
      SLUICE_RETURN_IF_ERROR(owner.send_pieces(bytes, fill));
    }
    SLUICE_RETURN_IF_ERROR(
        owner.receive<wire::Done>(answer_deadline()));  // behind what the kernels still hold
    return {};
  };
  std::unique_ptr<ConnectionCache::Borrowed> leader;
  Nanos until = deadline;
  const auto send_step = [&]() -> Result<void> {
    auto sent = send_push_step(model, request, number, is_early, until);
    if (!sent) return tl::unexpected(sent.error());
    leader = std::make_unique<ConnectionCache::Borrowed>(std::move(*sent));
    return {};
  };
  auto staged = pushes_.run(model, deadline, stage, is_early ? OwnerCalls::Before(send_step) : nullptr);
  if (!staged && leader) (*leader)->close();  // an answer is on its way
  SLUICE_RETURN_IF_ERROR(staged);
  // A transfer that took longer than the call's time would take as long again.
  if (monotonic_now() >= deadline) until = monotonic_now() + kWaitTime;
  Result<wire::PushAnswer> received;
  do {
    if (!leader) SLUICE_RETURN_IF_ERROR(send_step());
    received = (*leader)->receive<wire::PushAnswer>(prompt_deadline(kWaitTime));
    const bool is_waiting = !received && (*leader)->valid() && received.error().code == Errc::kTimeout;
    if (!is_waiting) break;
    leader.reset();
  } while (monotonic_now() < until);
  SLUICE_ASSIGN_OR_RETURN(answer, std::move(received));
  switch (answer.outcome) {
    case PushOutcome::kContained:
    case PushOutcome::kLate:
    case PushOutcome::kStale: return answer;
    case PushOutcome::kSuperseded:
      return fail(Errc::kMismatch, "another process pushes as worker " + std::to_string(options_.worker));
    case PushOutcome::kFuture:
      return invalid("base " + std::to_string(request.base) + " does not exist; the current version is " +
                     std::to_string(answer.version));
    case PushOutcome::kNotStaged: return fail(Errc::kReducerLost, "an owner has lost the pushed delta");
  }
  return fail(Errc::kBadField, "unknown outcome of a push");
}

uint32_t StoreClient::checksum(const OpenModel& model, const PushRequest& request) noexcept {
  const std::vector<store::TensorSpec>& tensors = model.shape->spec.tensors;
  uint32_t crc = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto* const bytes = static_cast<const std::byte*>(request.deltas[i]);
    crc = crc32c(std::span(bytes, tensors[i].elements() * size_of(tensors[i].dtype)), crc);
  }
  return crc;
}

Result<void> StoreClient::check_push(const OpenModel& model, const PushRequest& request) {
  if (!std::isfinite(request.weight) || request.weight <= 0)
    return invalid("weight is " + config::number_text(request.weight) + "; expected a finite number above 0");
  return check_pointers(model.shape->spec, request.deltas, "deltas");
}

Result<wire::PushAnswer> StoreClient::push(const PushRequest& request, Nanos timeout) {
  SLUICE_ASSIGN_OR_RETURN(model, current_model());
  SLUICE_RETURN_IF_ERROR(check_push(*model, request));
  const std::lock_guard lock(pushes_.mutex);
  return push(std::move(model), request, false, monotonic_now() + timeout);
}

Result<wire::PushAnswer> StoreClient::push(Model model, const PushRequest& request, bool is_early,
                                           Nanos deadline) {
  const bool is_repeated = unanswered_ && last_base_ == request.base && last_model_ == model->id &&
                           *unanswered_ == checksum(*model, request);
  if (!is_repeated) last_number_ = std::max(last_number_ + 1, number_now());
  last_base_ = request.base;
  last_model_ = model->id;
  auto answer = with_retries<wire::PushAnswer>(model, deadline, [&](const OpenModel& m) {
    return push_once(m, request, last_number_, std::exchange(is_early, false), deadline);
  });
  unanswered_.reset();
  // A refused push does not count, so the next one has a number of its own.
  const bool is_refused =
      !answer && (answer.error().code == Errc::kMismatch || answer.error().code == Errc::kInvalidArgument);
  if (!answer && !is_refused) unanswered_ = checksum(*model, request);
  return answer;
}

Result<uint64_t> StoreClient::pull_array(StoreConnection& owner, const OpenModel& model, wire::Pull request,
                                         const MessageChannel::Use& use) {
  SLUICE_RETURN_IF_ERROR(owner.send(request, prompt_deadline()));
  const Nanos wait = Nanos{request.timeout_ms} * kMillisecond;
  SLUICE_ASSIGN_OR_RETURN(answer, owner.receive<wire::PullAnswer>(prompt_deadline(wait)));
  const uint64_t expected = model.shape->body_bytes(request.dtype);
  if (answer.bytes != expected) {
    return owner.malformed(Errc::kBadLength, std::to_string(answer.bytes) + " bytes of shard " +
                                                 std::to_string(request.shard) + "; expected " +
                                                 std::to_string(expected));
  }
  SLUICE_RETURN_IF_ERROR(owner.receive_pieces(answer.bytes, use));
  return answer.steps;
}

Result<uint64_t> StoreClient::pull(void* const* tensors, uint64_t at_least, wire::DType dtype,
                                   Nanos timeout) {
  SLUICE_ASSIGN_OR_RETURN(model, current_model());
  SLUICE_RETURN_IF_ERROR(check_pointers(model->shape->spec, tensors, "tensors"));
  const std::lock_guard lock(pulls_.mutex);
  return pull(std::move(model), tensors, at_least, dtype, monotonic_now() + timeout);
}

Result<uint64_t> StoreClient::pull(Model model, void* const* tensors, uint64_t at_least, wire::DType dtype,
                                   Nanos deadline) {
  const auto attempt = [&](const OpenModel& m) -> Result<uint64_t> {
    SLUICE_ASSIGN_OR_RETURN(current, pulls_.wait_version(m, at_least, deadline));
    const auto pull_shard = [&](uint32_t shard, StoreConnection& owner) -> Result<void> {
      const wire::Pull request{.model = m.id, .shard = shard, .version = current, .dtype = dtype};
      const auto use = [&](uint64_t offset, std::span<const std::byte> piece) {
        return m.shape->bodies[shard].scatter(tensors, dtype, offset, piece);
      };
      SLUICE_RETURN_IF_ERROR(pull_array(owner, m, request, use));
      return {};
    };
    SLUICE_RETURN_IF_ERROR(pulls_.run(m, deadline, pull_shard));
    return current;
  };
  return with_retries<uint64_t>(model, deadline, attempt);
}

Result<uint64_t> StoreClient::wait(uint64_t at_least, Nanos timeout) {
  SLUICE_ASSIGN_OR_RETURN(model, current_model());
  const std::lock_guard lock(pulls_.mutex);
  const Nanos deadline = monotonic_now() + timeout;
  return with_retries<uint64_t>(
      model, deadline, [&](const OpenModel& m) { return pulls_.wait_version(m, at_least, deadline); });
}

}  // namespace sluice::store_client
