// The part of class Streams that enqueues the work of a batch on the device and on the stream pump. The order
// of the calls is one that a single hardware queue could run: a wait for the host is enqueued after
// everything for which the host waits.
#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "gpu_client/pipeline/streams.h"
#include "wire/dtype.h"

namespace sluice::pipeline {

std::vector<Band> Streams::segments_of(const Batch& batch) const {
  // A network operation has one contiguous buffer, which a segment of such a batch would not be.
  if (!batch.staged && wire::has_parts(batch.kind)) return {{}};
  return divide_into_segments(batch, options_.segment_bytes);
}

uint64_t Streams::network_operations(const std::vector<Batch>& batches) const {
  uint64_t count = 0;
  for (const Batch& batch : batches) {
    count += segments_of(batch).size();
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
      return fail(Errc::kUnsupported,
                  "outside the order of streams, collectives need buffers in host memory; use the function "
                  "with _on_stream");
  }
  const std::lock_guard lock(enqueue_mutex_);
  if (in_group_)
    return fail(Errc::kInvalidArgument,
                "a group contains operations in the order of streams only; use the function with _on_stream");
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
  const std::vector<Batch> batches = make_batches(tensors, options_.fusion_bytes, session_.rank());
  const uint64_t inflight = pump_.inflight();
  if (inflight > 0 && inflight + network_operations(batches) > kMaxInflight) {
    return fail(Errc::kExhausted, std::to_string(inflight) + " segments in flight; the limit is " +
                                      std::to_string(kMaxInflight));
  }
  const auto operation = std::make_shared<StreamOperation>();
  operation->caller_operations = operations;
  uint64_t request = 0;
  if (with_request) {
    // What runs in place beside the device's streams is complete with its network operations, and what has
    // no elements at once.
    if (!std::ranges::all_of(batches, [this](const Batch& b) { return is_beside_streams(b); })) {
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

bool Streams::is_beside_streams(const Batch& batch) const {
  return !batch.staged && !device_->is_ordered(batch.stream);
}

Status Streams::enqueue_batch(const Batch& batch, const OperationPtr& operation) {
  ++stats_.batches;
  if (is_beside_streams(batch)) return submit_in_place(batch, operation, false);
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
  // Without a result the stream may continue when the contribution has been copied.
  const bool waits = !batch.staged || batch.has_result();
  const Device::Stream last = waits ? device_->copy_in_stream() : device_->copy_out_stream();
  if (const Status s = device_->record(*batch_done_, last); !s.ok()) return s;
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
  segment_ranges_.clear();
  segment_runs_.clear();
  for (const Band& band : segments_of(batch))
    append_runs(batch, band, Side::kSend, segment_ranges_, segment_runs_);
  if (const Status s = device_->find_exponents(out, segment_ranges_, exponents); !s.ok()) return s;
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
  // Hosts divide an average at the end, so their partial sums must not overflow.
  const bool divides_first =
      batch.op == wire::Op::kAvg && session_.sums() != engine::CollectiveSession::Sums::kHostsConverted;
  cast.exponent_limit = scaled_exponent_limit(divides_first ? 1 : session_.ranks());
  if (const Status s = enqueue_staged(batch, operation, cast); !s.ok()) return s;
  buffer.used = true;
  return device_->record(*buffer.released, device_->copy_in_stream());
}

Status Streams::enqueue_staged(const Batch& batch, const OperationPtr& operation, const Cast& cast) {
  const std::vector<Band> bands = segments_of(batch);
  std::vector<StagedSegment> segments;
  segments.reserve(bands.size());
  for (const Band& band : bands) {
    StagedSegment& segment = segments.emplace_back(StagedSegment{.batch = batch, .band = band, .cast = cast});
    segment.cast.first = band.first * cast.unit().elements;
  }
  // Copies out as many segments as there are buffers before the first copy in; afterwards the two alternate.
  const uint64_t ahead = staging_.buffer_count();
  for (uint64_t i = 0; i < segments.size() + ahead; ++i) {
    if (i >= ahead && i - ahead < segments.size()) {
      if (const Status s = copy_in(segments[i - ahead]); !s.ok()) return s;
    }
    if (i < segments.size()) {
      if (const Status s = copy_out(segments[i], operation); !s.ok()) return s;
    }
  }
  return {};
}

Status Streams::copy_out(StagedSegment& segment, const OperationPtr& operation) {
  const Batch& batch = segment.batch;
  const Band& band = segment.band;
  const Cast& cast = segment.cast;
  const Device::Stream out = device_->copy_out_stream();
  const WireUnit unit = cast.unit();
  StagingBuffer& buffer = staging_.next_segment_buffer();
  if (buffer.used) {
    if (const Status s = device_->wait(out, *buffer.released); !s.ok()) return s;
  }
  // A copied contribution is also the rank's part of the result.
  std::byte* const send = wire::copies(batch.kind) ? buffer.recv : buffer.send;
  segment_ranges_.clear();
  segment_runs_.clear();
  append_runs(batch, band, Side::kSend, segment_ranges_, segment_runs_);
  for (const Run& run : segment_runs_) {
    Cast run_cast = cast;
    run_cast.first += run.first * unit.elements;
    const auto ranges = std::span(segment_ranges_).subspan(run.first_range, run.range_count);
    if (const Status s = device_->gather(out, ranges, send + run.first * unit.bytes, run_cast); !s.ok())
      return s;
    stats_.bytes_staged_out += run.units * unit.bytes;
    if (cast.wire != WireCast::kNone) stats_.elements_cast += run.elements;
  }
  NetworkOperation network;
  if (const Status s = record_ready(network.ready); !s.ok()) return s;
  network.request = {.send = send,
                     .recv = buffer.recv,
                     .count = band.count,
                     .dtype = batch.wire_dtype(),
                     .op = batch.op,
                     .is_converted = cast.wire != WireCast::kNone,
                     .kind = batch.kind,
                     .root = batch.root};
  if (wire::has_parts(batch.kind)) {
    for (uint32_t p = 0; p < batch.parts.size(); ++p)
      network.counts.push_back(band.units_of(p, unit.count(batch.parts[p].count)));
    // The buffer that has this rank's part only begins with it.
    const Rank rank = session_.rank();
    const uint64_t before =
        std::accumulate(network.counts.begin(), network.counts.begin() + rank, uint64_t{0}) * unit.bytes;
    if (batch.kind == wire::Kind::kAllGather) {
      network.request.send += before;
    } else {
      network.request.recv += before;
    }
  }
  network.number = ++last_number_;
  network.operation = operation;
  segment.buffer = &buffer;
  segment.number = last_number_;
  pump_.submit(std::move(network));
  return {};
}

Status Streams::copy_in(const StagedSegment& segment) {
  const Cast& cast = segment.cast;
  const Device::Stream in = device_->copy_in_stream();
  const WireUnit unit = cast.unit();
  if (const Status s = device_->wait_value(in, staging_.completion_word(), segment.number); !s.ok()) return s;
  segment_ranges_.clear();
  segment_runs_.clear();
  append_runs(segment.batch, segment.band, Side::kRecv, segment_ranges_, segment_runs_);
  for (const Run& run : segment_runs_) {
    Cast run_cast = cast;
    run_cast.first += run.first * unit.elements;
    const auto ranges = std::span(segment_ranges_).subspan(run.first_range, run.range_count);
    const std::byte* const from = segment.buffer->recv + run.first * unit.bytes;
    if (const Status s = device_->scatter(in, from, ranges, run_cast); !s.ok()) return s;
    stats_.bytes_staged_in += run.units * unit.bytes;
  }
  segment.buffer->used = true;
  return device_->record(*segment.buffer->released, in);
}

Status Streams::enqueue_in_place(const Batch& batch, const OperationPtr& operation) {
  if (const Status s = submit_in_place(batch, operation, true); !s.ok()) return s;
  return device_->wait_value(device_->copy_in_stream(), staging_.completion_word(), last_number_);
}

Status Streams::submit_in_place(const Batch& batch, const OperationPtr& operation, bool in_order) {
  const size_t size = wire::size_of(batch.dtype);
  std::unique_ptr<Event> ready;
  if (in_order) {
    if (const Status s = record_ready(ready); !s.ok()) return s;
  }
  for (const Band& band : segments_of(batch)) {
    NetworkOperation network;
    network.ready = std::move(ready);  // the first segment's event covers the others too
    network.request = {.send = batch.send,
                       .recv = batch.recv,
                       .count = batch.count,
                       .dtype = batch.dtype,
                       .op = batch.op,
                       .kind = batch.kind,
                       .root = batch.root};
    if (wire::has_parts(batch.kind)) {
      for (const Part& part : batch.parts) network.counts.push_back(part.count);
    } else {
      network.request.send += band.begin * size;
      network.request.recv += band.begin * size;
      network.request.count = band.count;
    }
    network.number = ++last_number_;
    network.operation = operation;
    pump_.submit(std::move(network));
  }
  return {};
}

}  // namespace sluice::pipeline
