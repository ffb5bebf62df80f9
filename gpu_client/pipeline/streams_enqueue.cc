// The part of class Streams that enqueues the work of a batch on the device and on the stream pump. The order
// of the calls is one that a single hardware queue could run: a wait for the host is enqueued after
// everything for which the host waits.
#include <algorithm>
#include <string>
#include <utility>

#include "gpu_client/pipeline/streams.h"
#include "wire/dtype.h"

namespace sluice::pipeline {

uint64_t Streams::segment_elements_of(const Batch& batch) const noexcept {
  return segment_elements(batch.count, batch.wire_unit(), options_.segment_bytes);
}

uint64_t Streams::network_operations(const std::vector<Batch>& batches) const noexcept {
  uint64_t count = 0;
  for (const Batch& batch : batches) {
    count += div_ceil(batch.count, segment_elements_of(batch));
    if (batch.cast == WireCast::kScaledF16) ++count;
  }
  return count;
}

Result<void> Streams::check_open() {
  if (const Errc code = session_.code(); code != Errc::kOk) return fail(code, session_.reason());
  if (has_failed_.load(std::memory_order_relaxed))
    return fail(Errc::kSystem, "an earlier operation of the session failed");
  return {};
}

Result<uint64_t> Streams::submit_collective(const engine::OpRequest& request) {
  for (const std::byte* const buffer : {request.send, static_cast<const std::byte*>(request.recv)}) {
    const auto location = buffer != nullptr ? device_->locate(buffer, 1) : Device::MemoryLocation::kHost;
    if (!location) return tl::unexpected(location.error());
    if (*location != Device::MemoryLocation::kHost || session_.is_device_memory(buffer, 1))
      return fail(Errc::kUnsupported, "collectives other than allreduce need buffers in host memory");
  }
  const std::lock_guard lock(enqueue_mutex_);
  if (in_group_) return fail(Errc::kInvalidArgument, "a group contains allreduces only");
  if (auto open = check_open(); !open) return tl::unexpected(open.error());
  if (const uint64_t inflight = pump_.inflight(); inflight >= kMaxInflight)
    return fail(Errc::kExhausted, std::to_string(inflight) + " segments in flight is the limit");
  const auto operation = std::make_shared<StreamOperation>();
  const uint64_t number = register_operation(operation);
  NetworkOperation network;
  network.request = request;
  network.counts.assign(request.counts.begin(), request.counts.end());
  network.number = ++last_number_;
  network.operation = operation;
  pump_.submit(std::move(network));
  pump_.finish_submission(*operation, Errc::kOk);
  return number;
}

Result<uint64_t> Streams::enqueue(const std::vector<Tensor>& tensors, uint64_t operations,
                                  bool with_request) {
  if (auto open = check_open(); !open) return tl::unexpected(open.error());
  const std::vector<Batch> batches = make_batches(tensors, options_.fusion_bytes);
  const uint64_t inflight = pump_.inflight();
  if (inflight > 0 && inflight + network_operations(batches) > kMaxInflight) {
    return fail(Errc::kExhausted, std::to_string(inflight) + " segments in flight; the limit is " +
                                      std::to_string(kMaxInflight));
  }
  const auto operation = std::make_shared<StreamOperation>();
  operation->caller_operations = operations;
  uint64_t request = 0;
  if (with_request) {
    // An operation without elements is complete at once and needs no event.
    if (!batches.empty()) {
      auto event = device_->make_event();
      if (!event) return tl::unexpected(event.error());
      operation->done = std::move(*event);
    }
    request = register_operation(operation);
  }
  Status status;
  std::string error;
  try {
    for (const Batch& batch : batches) {
      if (status = enqueue_batch(batch, operation); !status.ok()) break;
    }
    if (status.ok() && operation->done) status = device_->record(*operation->done, device_->copy_in_stream());
    if (!status.ok()) error = device_->last_error();
  } catch (const std::exception& e) {
    status = Errc::kSystem;
    error = std::string("cannot enqueue the operation: ") + e.what();
  }
  pump_.finish_submission(*operation, status.code());
  if (status.ok()) return request;
  fail_session({status.code(), error});
  release_streams(batches);
  if (with_request) remove_operation(request);
  return fail(status.code(), error);
}

// After a failure, the work enqueued before it may still access the caller's buffers. Makes the caller's
// streams wait for that work, as far as the device still accepts calls.
void Streams::release_streams(const std::vector<Batch>& batches) {
  try {
    for (const Batch& batch : batches) {
      for (const Device::Stream own : {device_->copy_out_stream(), device_->copy_in_stream()}) {
        if (device_->record(*batch_done_, own).ok()) (void)device_->wait(batch.stream, *batch_done_);
      }
    }
  } catch (const std::bad_alloc&) {
    return;  // only the host device allocates here
  }
}

Status Streams::enqueue_batch(const Batch& batch, const OperationPtr& operation) {
  ++stats_.batches;
  if (!batch.staged && !device_->is_ordered(batch.stream)) return submit_in_place(batch, operation, false);
  if (const Status s = device_->record(*caller_reached_, batch.stream); !s.ok()) return s;
  for (const Device::Stream stream : {device_->copy_out_stream(), device_->copy_in_stream()}) {
    if (const Status s = device_->wait(stream, *caller_reached_); !s.ok()) return s;
  }
  Cast cast;
  cast.wire = batch.cast;
  cast.element_bytes = static_cast<uint32_t>(wire::size_of(batch.dtype));
  cast.measure = options_.measure_error;
  cast.stochastic = options_.stochastic_rounding && is_block(batch.cast);
  cast.seed = uint64_t{session_.rank()} << 48 ^ stats_.batches;
  Status status;
  if (batch.cast == WireCast::kScaledF16) {
    status = enqueue_exponents(batch, operation, cast);
  } else {
    status = batch.staged ? enqueue_staged(batch, operation, cast) : enqueue_in_place(batch, operation);
  }
  if (!status.ok()) return status;
  if (const Status s = device_->record(*batch_done_, device_->copy_in_stream()); !s.ok()) return s;
  return device_->wait(batch.stream, *batch_done_);
}

Status Streams::record_ready(std::unique_ptr<Event>& event) {
  event = pump_.acquire_spare_event();
  if (!event) {
    auto made = device_->make_event();
    if (!made) return made.error().code;
    event = std::move(*made);
  }
  return device_->record(*event, device_->copy_out_stream());
}

Status Streams::enqueue_exponents(const Batch& batch, const OperationPtr& operation, Cast& cast) {
  const Device::Stream out = device_->copy_out_stream();
  StagingBuffer& buffer = staging_.next_exponent_buffer();
  if (buffer.used) {
    if (const Status s = device_->wait(out, *buffer.released); !s.ok()) return s;
  }
  auto* const exponents = reinterpret_cast<uint8_t*>(buffer.send);
  if (const Status s = device_->find_exponents(out, batch.ranges, exponents); !s.ok()) return s;
  NetworkOperation network;
  if (const Status s = record_ready(network.ready); !s.ok()) return s;
  network.request = {.send = buffer.send,
                     .recv = buffer.recv,
                     .count = div_ceil(batch.count, kScaleBlock),
                     .dtype = wire::DType::kU8,
                     .op = wire::Op::kMax};
  network.number = ++last_number_;
  network.is_segment = false;
  network.operation = operation;
  pump_.submit(std::move(network));
  if (const Status s = device_->wait_value(out, staging_.completion_word(), last_number_); !s.ok()) return s;
  cast.exponents = reinterpret_cast<const uint8_t*>(buffer.recv);
  cast.exponent_limit = scaled_exponent_limit(batch.op == wire::Op::kAvg ? 1 : session_.ranks());
  if (const Status s = enqueue_staged(batch, operation, cast); !s.ok()) return s;
  buffer.used = true;
  return device_->record(*buffer.released, device_->copy_in_stream());
}

Status Streams::enqueue_staged(const Batch& batch, const OperationPtr& operation, Cast cast) {
  const uint64_t elements = segment_elements_of(batch);
  const uint64_t segments = div_ceil(batch.count, elements);
  const WireUnit unit = cast.unit();
  struct Inflight {
    StagingBuffer* buffer;
    uint32_t number;
  };
  std::vector<Inflight> inflight(segments);
  // Sets segment_ranges_ and cast.first; returns the elements of the segment.
  const auto select = [&](uint64_t segment) {
    cast.first = segment * elements;
    const uint64_t count = std::min(elements, batch.count - cast.first);
    slice_ranges(batch.ranges, cast.first, count, cast.element_bytes, segment_ranges_);
    return count;
  };
  const auto copy_out = [&](uint64_t segment) -> Status {
    const Device::Stream out = device_->copy_out_stream();
    StagingBuffer& buffer = staging_.next_segment_buffer();
    if (buffer.used) {
      if (const Status s = device_->wait(out, *buffer.released); !s.ok()) return s;
    }
    const uint64_t count = select(segment);
    if (const Status s = device_->gather(out, segment_ranges_, buffer.send, cast); !s.ok()) return s;
    NetworkOperation network;
    if (const Status s = record_ready(network.ready); !s.ok()) return s;
    network.request = {.send = buffer.send,
                       .recv = buffer.recv,
                       .count = unit.count(count),
                       .dtype = batch.wire_dtype(),
                       .op = batch.op};
    network.number = ++last_number_;
    network.operation = operation;
    inflight[segment] = {&buffer, last_number_};
    pump_.submit(std::move(network));
    stats_.bytes_staged_out += unit.count(count) * unit.bytes;
    if (cast.wire != WireCast::kNone) stats_.elements_cast += count;
    return {};
  };
  const auto copy_in = [&](uint64_t segment) -> Status {
    const Device::Stream in = device_->copy_in_stream();
    const auto [buffer, number] = inflight[segment];
    if (const Status s = device_->wait_value(in, staging_.completion_word(), number); !s.ok()) return s;
    const uint64_t count = select(segment);
    if (const Status s = device_->scatter(in, buffer->recv, segment_ranges_, cast); !s.ok()) return s;
    stats_.bytes_staged_in += unit.count(count) * unit.bytes;
    buffer->used = true;
    return device_->record(*buffer->released, in);
  };
  // Copies out as many segments as there are buffers before the first copy in; afterwards the two alternate.
  const uint64_t ahead = staging_.buffer_count();
  for (uint64_t segment = 0; segment < segments + ahead; ++segment) {
    if (segment >= ahead && segment - ahead < segments) {
      if (const Status s = copy_in(segment - ahead); !s.ok()) return s;
    }
    if (segment < segments) {
      if (const Status s = copy_out(segment); !s.ok()) return s;
    }
  }
  return {};
}

Status Streams::enqueue_in_place(const Batch& batch, const OperationPtr& operation) {
  if (const Status s = submit_in_place(batch, operation, true); !s.ok()) return s;
  return device_->wait_value(device_->copy_in_stream(), staging_.completion_word(), last_number_);
}

Status Streams::submit_in_place(const Batch& batch, const OperationPtr& operation, bool in_order) {
  const uint64_t elements = segment_elements_of(batch);
  const size_t size = wire::size_of(batch.dtype);
  const BufferRange& range = batch.ranges.front();
  for (uint64_t first = 0; first < batch.count; first += elements) {
    NetworkOperation network;
    // The first segment's event covers the others too.
    if (in_order && first == 0) {
      if (const Status s = record_ready(network.ready); !s.ok()) return s;
    }
    network.request = {.send = range.send + first * size,
                       .recv = range.recv + first * size,
                       .count = std::min(elements, batch.count - first),
                       .dtype = batch.dtype,
                       .op = batch.op};
    network.number = ++last_number_;
    network.operation = operation;
    pump_.submit(std::move(network));
  }
  return {};
}

}  // namespace sluice::pipeline
