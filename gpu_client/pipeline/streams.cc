#include "gpu_client/pipeline/streams.h"

#include <algorithm>
#include <utility>

#include "wire/dtype.h"

namespace sluice::pipeline {
namespace {

// The memory of the buffers of which this rank uses elements.
std::span<const std::byte> sent_bytes(const Tensor& t, Rank rank) noexcept {
  uint64_t count = t.kind == wire::Kind::kAllGather ? t.counts[rank] : t.count;
  if (t.kind == wire::Kind::kBroadcast && t.root != rank) count = 0;
  return {t.send, count * wire::size_of(t.dtype)};
}
std::span<const std::byte> received_bytes(const Tensor& t, Rank rank) noexcept {
  uint64_t count = t.kind == wire::Kind::kReduceScatter ? t.counts[rank] : t.count;
  if (t.kind == wire::Kind::kReduce && t.root != rank) count = 0;
  return {t.recv, count * wire::size_of(t.dtype)};
}

Error no_completion() {
  return {Errc::kInvalidArgument,
          "stream and request are both NULL: nothing would report the completion; pass one of them"};
}

}  // namespace

Result<std::unique_ptr<Streams>> Streams::open(engine::CollectiveSession& session,
                                               std::unique_ptr<Device> device,
                                               const StreamsOptions& options) {
  auto staging = Staging::make(*device, options.staging_bytes, options.segment_bytes,
                               options.cast == WireCast::kScaledF16);
  if (!staging) return tl::unexpected(staging.error());
  std::unique_ptr<Streams> streams(new Streams(session, std::move(device), options, std::move(*staging)));
  for (std::unique_ptr<Event>* event : {&streams->caller_reached_, &streams->batch_done_}) {
    auto made = streams->device_->make_event();
    if (!made) return tl::unexpected(made.error());
    *event = std::move(*made);
  }
  if (auto started = streams->pump_.start(); !started) return tl::unexpected(started.error());
  // Some GPUs lack stream memory operations, which every operation needs. The word is 0, so nothing blocks.
  Device& d = *streams->device_;
  for (const Device::Stream stream : {d.copy_out_stream(), d.copy_in_stream()}) {
    if (!d.wait_value(stream, streams->staging_.completion_word(), 0).ok()) {
      return fail(Errc::kUnsupported,
                  "the device does not support streams that wait for a word in memory: " + d.last_error());
    }
  }
  d.synchronize_copy_streams();
  // Lets RDMA access the staging in place. If the card refuses, the payload is copied as from any
  // unregistered memory, so the error is ignored.
  (void)session.register_memory(streams->staging_.bytes());
  return streams;
}

Streams::Streams(engine::CollectiveSession& session, std::unique_ptr<Device> device,
                 const StreamsOptions& options, Staging staging)
    : session_(session),
      options_(options),
      device_(std::move(device)),
      staging_(std::move(staging)),
      pump_(session, *device_, staging_.completion_word()) {
  stats_.pinned_bytes = staging_.bytes().size();
}

Streams::~Streams() {
  pump_.close(0);
  device_->synchronize_copy_streams();  // they may still access the staging
  (void)session_.deregister_memory(staging_.bytes());
}

bool Streams::is_registered(std::span<const std::byte> buffer) const {
  return !buffer.empty() && session_.is_device_memory(buffer.data(), buffer.size());
}

Result<Device::MemoryLocation> Streams::locate_buffers(const Tensor& tensor, float* residual) {
  struct Buffer {
    const char* name;
    std::span<const std::byte> bytes;
  };
  const Buffer buffers[] = {
      {"send", sent_bytes(tensor, session_.rank())},
      {"recv", received_bytes(tensor, session_.rank())},
      {"residual", std::as_bytes(std::span(residual, residual != nullptr ? tensor.count : 0))}};
  const Buffer* first = nullptr;
  auto location = Device::MemoryLocation::kHost;
  for (const Buffer& buffer : buffers) {
    if (buffer.bytes.empty()) continue;
    const auto found = device_->locate(buffer.bytes.data(), buffer.bytes.size());
    if (!found) return add_context(buffer.name, found.error());
    if (first != nullptr && *found != location) {
      return fail(Errc::kInvalidArgument,
                  std::string(first->name) + " and " + buffer.name +
                      " must both be GPU memory or both be host memory, but one is GPU memory and the other "
                      "host memory");
    }
    if (first == nullptr) first = &buffer;
    location = *found;
  }
  return location;
}

Result<Tensor> Streams::make_tensor(const engine::OpRequest& request, float* residual,
                                    Device::Stream stream) {
  Tensor tensor{.send = request.send,
                .recv = request.recv,
                .count = request.count,
                .kind = request.kind,
                .root = request.root,
                .dtype = request.dtype,
                .op = request.op,
                .stream = stream};
  if (wire::has_parts(request.kind)) {
    tensor.counts.assign(request.counts.begin(), request.counts.end());
    if (tensor.counts.empty()) tensor.counts.assign(session_.ranks(), request.count / session_.ranks());
  }
  if (wire::is_block(request.dtype) && !session_.accepts_blocks())
    return fail(Errc::kUnsupported, "a reducer is of a release without 8-bit block types");
  if (request.dtype == wire::DType::kF32 && !wire::copies(request.kind) &&
      (request.op == wire::Op::kSum || request.op == wire::Op::kAvg) &&
      request.count >= options_.min_cast_count &&
      session_.sums() != engine::CollectiveSession::Sums::kOneHost)
    tensor.cast = options_.cast;
  if (is_block(tensor.cast)) tensor.residual = residual;
  const auto location = locate_buffers(tensor, tensor.residual);
  if (!location) return tl::unexpected(location.error());
  const bool on_host = *location == Device::MemoryLocation::kHost;
  const bool send_registered = is_registered(sent_bytes(tensor, session_.rank()));
  const bool recv_registered = is_registered(received_bytes(tensor, session_.rank()));
  // The host device takes registered GPU memory for its own, but the CPU must not access it.
  const bool inaccessible = on_host && (send_registered || recv_registered);
  tensor.stageable = on_host ? device_->can_access_host_memory() && !inaccessible : true;
  if (!tensor.stageable && tensor.cast != WireCast::kNone) {
    return fail(Errc::kUnsupported, inaccessible
                                        ? "GPU memory cannot be converted to wire_dtype from a host stream"
                                        : "host memory cannot be converted to wire_dtype from a GPU stream");
  }
  const bool is_allreduce = request.kind == wire::Kind::kAllreduce;
  if (inaccessible && !is_allreduce)
    return fail(Errc::kUnsupported, "from a host stream, GPU memory can only be in allreduces");
  const bool in_place = is_allreduce && send_registered && recv_registered;
  tensor.staged = on_host ? options_.always_staged && !inaccessible : !in_place;
  return tensor;
}

Result<uint64_t> Streams::submit(const engine::OpRequest& request, float* residual, Device::Stream stream,
                                 bool with_request) {
  return fail_session_on_error([&] { return add_operation(request, residual, stream, with_request); });
}

Result<uint64_t> Streams::collective(const engine::OpRequest& request) {
  return fail_session_on_error([&] { return submit_collective(request); });
}

Result<uint64_t> Streams::end_group(bool with_request) {
  return fail_session_on_error([&] { return enqueue_group(with_request); });
}

// An operation that fails because of the system, not because of its arguments, fails the session. The other
// ranks would wait for it otherwise.
template <typename Enqueue>
Result<uint64_t> Streams::fail_session_on_error(Enqueue&& enqueue) {
  Result<uint64_t> request;
  try {
    request = enqueue();
  } catch (const std::bad_alloc&) {
    request = fail(Errc::kSystem, "out of memory");
  }
  if (!request && request.error().code == Errc::kSystem) fail_session(request.error());
  return request;
}

void Streams::fail_session(const Error& why) noexcept {
  has_failed_.store(true, std::memory_order_relaxed);
  if (session_.code() == Errc::kOk) session_.abort(why.code, why.text);
}

Result<uint64_t> Streams::add_operation(const engine::OpRequest& request, float* residual,
                                        Device::Stream stream, bool with_request) {
  if (auto checked = device_->check_stream(stream); !checked) return tl::unexpected(checked.error());
  const std::lock_guard lock(enqueue_mutex_);
  if (in_group_ && with_request) return fail(Errc::kInvalidArgument, "request must be NULL within a group");
  if (!in_group_ && !with_request && !device_->is_ordered(stream)) return tl::unexpected(no_completion());
  std::vector<Tensor> tensors;
  if (request.count > 0) {
    auto tensor = make_tensor(request, residual, stream);
    if (!tensor) return tl::unexpected(tensor.error());
    tensors.push_back(*tensor);
  }
  if (!in_group_) return enqueue(tensors, 1, with_request);
  group_.insert(group_.end(), tensors.begin(), tensors.end());
  ++group_operations_;
  return uint64_t{0};
}

Result<void> Streams::begin_group() {
  const std::lock_guard lock(enqueue_mutex_);
  if (in_group_)
    return fail(Errc::kInvalidArgument, "the session already has an open group; groups do not nest");
  in_group_ = true;
  return {};
}

void Streams::fail_group(const Error& why) {
  const std::lock_guard lock(enqueue_mutex_);
  if (in_group_ && group_error_) group_error_ = tl::unexpected(why);
}

Result<uint64_t> Streams::enqueue_group(bool with_request) {
  const std::lock_guard lock(enqueue_mutex_);
  if (!in_group_) return fail(Errc::kInvalidArgument, "the session has no open group");
  in_group_ = false;
  const std::vector<Tensor> tensors = std::exchange(group_, {});
  const uint64_t operations = std::exchange(group_operations_, 0);
  const Result<void> error = std::exchange(group_error_, {});
  if (!error) return add_context("an operation of the group was refused", error.error());
  const auto is_unordered = [this](const Tensor& t) { return !device_->is_ordered(t.stream); };
  if (!with_request && std::ranges::any_of(tensors, is_unordered)) return tl::unexpected(no_completion());
  return enqueue(tensors, operations, with_request);
}

uint64_t Streams::register_operation(OperationPtr operation) {
  const std::lock_guard lock(requests_mutex_);
  if (next_request_ == 0) ++next_request_;
  const uint64_t request = uint64_t{next_request_++} << 32 | kRequestBit;
  operation->request = request;
  operations_.emplace(request, std::move(operation));
  return request;
}

Streams::OperationPtr Streams::find_operation(uint64_t request) {
  const std::lock_guard lock(requests_mutex_);
  const auto found = operations_.find(request);
  return found != operations_.end() ? found->second : nullptr;
}

void Streams::remove_operation(uint64_t request) {
  const std::lock_guard lock(requests_mutex_);
  operations_.erase(request);
}

Status Streams::test(uint64_t request, bool& done) {
  done = false;
  const OperationPtr operation = find_operation(request);
  if (!operation) return Errc::kInvalidArgument;
  Errc result = Errc::kOk;
  if (!pump_.wait(*operation, 0, result) || (operation->done && !device_->is_complete(*operation->done)))
    return Errc::kOk;
  done = true;
  return complete_request(request, *operation, result);
}

Status Streams::wait(uint64_t request, Nanos deadline) {
  const OperationPtr operation = find_operation(request);
  if (!operation) return Errc::kInvalidArgument;
  Errc result = Errc::kOk;
  if (!pump_.wait(*operation, deadline, result)) return Errc::kTimeout;
  return complete_request(request, *operation, result);
}

// The operation has finished on the network. What may remain are copies on the device's own stream, which no
// longer wait for the host.
Status Streams::complete_request(uint64_t request, StreamOperation& operation, Errc result) {
  const Status copied = operation.done ? device_->synchronize(*operation.done) : Status{};
  if (!copied.ok()) fail_session({copied.code(), device_->last_error()});
  remove_operation(request);
  return result != Errc::kOk ? Status(result) : copied;
}

Result<StreamsStats> Streams::stats() {
  StreamsStats out;
  {
    const std::lock_guard lock(enqueue_mutex_);
    out = stats_;
  }
  if (options_.measure_error) {
    // Not under enqueue_mutex_: cast_error() may wait for other ranks.
    const std::lock_guard lock(cast_error_mutex_);
    const auto error = device_->cast_error();
    if (!error) return tl::unexpected(error.error());
    out.error = *error;
  }
  out.completed = pump_.counters();
  return out;
}

}  // namespace sluice::pipeline
