#include "gpu_client/pipeline/streams.h"

#include <algorithm>
#include <utility>

#include "wire/dtype.h"

namespace sluice::pipeline {
namespace {

Error unheard() {
  return {Errc::kInvalidArgument, "with neither a stream nor a request nobody hears of the end"};
}

}  // namespace

Result<std::unique_ptr<Streams>> Streams::open(engine::Session& session, std::unique_ptr<Device> device,
                                               const StreamsOptions& options) {
  auto staging = Staging::make(*device, options.staging_bytes, options.piece_bytes,
                               options.cast == WireCast::kScaledF16);
  if (!staging) return tl::unexpected(staging.error());
  std::unique_ptr<Streams> streams(new Streams(session, std::move(device), options, std::move(*staging)));
  for (std::unique_ptr<Event>* event : {&streams->begun_, &streams->ended_}) {
    auto made = streams->device_->make_event();
    if (!made) return tl::unexpected(made.error());
    *event = std::move(*made);
  }
  if (auto started = streams->courier_.start(); !started) return tl::unexpected(started.error());
  // What every operation will ask for, and some GPUs lack. Nothing is held: the word is 0.
  for (const Device::Stream stream : {streams->device_->out(), streams->device_->in()}) {
    if (!streams->device_->hold(stream, streams->staging_.landed(), 0).ok()) {
      return fail(Errc::kUnsupported,
                  "streams can't wait for a word in memory here: " + streams->device_->last_words());
    }
  }
  streams->device_->finish();
  // Over RDMA the staging is then read and written in place. Where a card refuses it is copied, as all memory
  // that is not registered.
  (void)session.know_memory(streams->staging_.bytes());
  return streams;
}

Streams::Streams(engine::Session& session, std::unique_ptr<Device> device, const StreamsOptions& options,
                 Staging staging)
    : session_(session),
      options_(options),
      device_(std::move(device)),
      staging_(std::move(staging)),
      courier_(session, *device_, staging_.landed()) {
  stats_.pinned_bytes = staging_.bytes().size();
}

Streams::~Streams() {
  courier_.close(0);
  device_->finish();  // its streams may still be in the staging
  (void)session_.forget_memory(staging_.bytes());
}

Result<Tensor> Streams::look_at(const engine::OpRequest& request, Device::Stream stream) {
  Tensor tensor{.send = request.send,
                .recv = request.recv,
                .count = request.count,
                .dtype = request.dtype,
                .op = request.op,
                .stream = stream};
  const uint64_t bytes = request.count * wire::size_of(request.dtype);
  const auto send = device_->look_at(request.send, bytes);
  if (!send) return add_context("send", send.error());
  const auto recv = device_->look_at(request.recv, bytes);
  if (!recv) return add_context("recv", recv.error());
  if (*send != *recv) {
    return fail(Errc::kInvalidArgument, "one of send and recv is memory of the GPU, the other of the host");
  }
  const bool host = *send == Device::Where::kHost;
  const bool known_send = session_.knows_device_memory(request.send, bytes);
  const bool known_recv = session_.knows_device_memory(request.recv, bytes);
  if (request.dtype == wire::DType::kF32 && (request.op == wire::Op::kSum || request.op == wire::Op::kAvg))
    tensor.cast = options_.cast;
  // No processor touches a GPU's memory, which the host's device can't tell from its own.
  const bool untouchable = host && (known_send || known_recv);
  tensor.stageable = host ? device_->reaches_host_memory() && !untouchable : true;
  if (!tensor.stageable && tensor.cast != WireCast::kNone) {
    return fail(Errc::kUnsupported,
                untouchable ? "a GPU's memory can't travel as wire_dtype from a stream of the host"
                            : "memory of the host can't travel as wire_dtype from a GPU's stream");
  }
  tensor.staged = host ? options_.always_staged && !untouchable : !known_send || !known_recv;
  return tensor;
}

Result<uint64_t> Streams::allreduce(const engine::OpRequest& request, Device::Stream stream, bool asked) {
  return or_end([&] { return take(request, stream, asked); });
}

Result<uint64_t> Streams::end_group(bool asked) {
  return or_end([&] { return take_group(asked); });
}

// An operation that fails for other reasons than its own is one that other ranks will wait for.
template <typename Give>
Result<uint64_t> Streams::or_end(Give&& give) {
  Result<uint64_t> given;
  try {
    given = give();
  } catch (const std::bad_alloc&) {
    given = fail(Errc::kSystem, "out of memory");
  }
  if (!given && given.error().code == Errc::kSystem) end_with(given.error());
  return given;
}

void Streams::end_with(const Error& why) noexcept {
  broken_.store(true, std::memory_order_relaxed);
  if (session_.code() == Errc::kOk) session_.abort(why.code, why.text);
}

Result<uint64_t> Streams::take(const engine::OpRequest& request, Device::Stream stream, bool asked) {
  if (auto checked = device_->check_stream(stream); !checked) return tl::unexpected(checked.error());
  const std::lock_guard lock(giving_);
  if (in_group_ && asked) return fail(Errc::kInvalidArgument, "within a group request must be NULL");
  if (!in_group_ && !asked && !device_->keeps_order(stream)) return tl::unexpected(unheard());
  std::vector<Tensor> tensors;
  if (request.count > 0) {
    auto tensor = look_at(request, stream);
    if (!tensor) return tl::unexpected(tensor.error());
    tensors.push_back(*tensor);
  }
  if (!in_group_) return give(tensors, 1, asked);
  group_.insert(group_.end(), tensors.begin(), tensors.end());
  ++group_operations_;
  return uint64_t{0};
}

Result<void> Streams::begin_group() {
  const std::lock_guard lock(giving_);
  if (in_group_) return fail(Errc::kInvalidArgument, "a group of this session is open: groups do not nest");
  in_group_ = true;
  return {};
}

void Streams::spoil_group(const Error& why) {
  const std::lock_guard lock(giving_);
  if (in_group_ && group_error_) group_error_ = tl::unexpected(why);
}

Result<uint64_t> Streams::take_group(bool asked) {
  const std::lock_guard lock(giving_);
  if (!in_group_) return fail(Errc::kInvalidArgument, "no group of this session is open");
  in_group_ = false;
  const std::vector<Tensor> tensors = std::exchange(group_, {});
  const uint64_t operations = std::exchange(group_operations_, 0);
  const Result<void> error = std::exchange(group_error_, {});
  if (!error) return add_context("an operation of the group was refused", error.error());
  const auto is_unheard = [this](const Tensor& t) { return !device_->keeps_order(t.stream); };
  if (!asked && std::ranges::any_of(tensors, is_unheard)) return tl::unexpected(unheard());
  return give(tensors, operations, asked);
}

uint64_t Streams::name_flight(std::shared_ptr<Flight> flight) {
  const std::lock_guard lock(names_);
  if (next_name_ == 0) ++next_name_;
  const uint64_t name = uint64_t{next_name_++} << 32 | kNameBit;
  flights_.emplace(name, std::move(flight));
  return name;
}

std::shared_ptr<Flight> Streams::find(uint64_t name) {
  const std::lock_guard lock(names_);
  const auto found = flights_.find(name);
  return found != flights_.end() ? found->second : nullptr;
}

void Streams::forget(uint64_t name) {
  const std::lock_guard lock(names_);
  flights_.erase(name);
}

Status Streams::test(uint64_t name, bool& done) {
  done = false;
  const std::shared_ptr<Flight> flight = find(name);
  if (!flight) return Errc::kInvalidArgument;
  Errc how = Errc::kOk;
  if (!courier_.await(*flight, 0, how) || (flight->done && !device_->is_over(*flight->done)))
    return Errc::kOk;
  done = true;
  return end(name, *flight, how);
}

Status Streams::wait(uint64_t name, Nanos deadline) {
  const std::shared_ptr<Flight> flight = find(name);
  if (!flight) return Errc::kInvalidArgument;
  Errc how = Errc::kOk;
  if (!courier_.await(*flight, deadline, how)) return Errc::kTimeout;
  return end(name, *flight, how);
}

// Of one that has landed: all that may be left are copies of the device's own stream that nothing holds any
// more.
Status Streams::end(uint64_t name, Flight& flight, Errc how) {
  const Status copied = flight.done ? device_->await(*flight.done) : Status{};
  if (!copied.ok()) end_with({copied.code(), device_->last_words()});
  forget(name);
  return how != Errc::kOk ? Status(how) : copied;
}

Result<StreamsStats> Streams::stats() {
  StreamsStats out;
  {
    const std::lock_guard lock(giving_);
    out = stats_;
  }
  if (options_.measure_error) {
    // Not with the other lock: it may wait for other ranks.
    const std::lock_guard lock(measuring_);
    const auto error = device_->cast_error();
    if (!error) return tl::unexpected(error.error());
    out.error = *error;
  }
  out.carried = courier_.counts();
  return out;
}

void Streams::close(Nanos deadline) {
  courier_.close(deadline);
}

}  // namespace sluice::pipeline
