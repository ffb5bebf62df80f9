#include "gpu_client/engine/data_path/operation_recorder.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "gpu_client/engine/trace/time_parts.h"

namespace sluice::engine {

OperationRecord begin_record(const OpTable& table, uint32_t operation) noexcept {
  const Operation& o = table[operation];
  return {.handle = table.handle_of(operation),
          .op_id = o.op_id,
          .bytes = o.bytes,
          .count = o.request.count,
          .kind = o.request.kind,
          .dtype = o.request.dtype,
          .op = o.request.op,
          .on_device = o.request.on_device,
          .issued = o.request.issued};
}

OperationRecorder::OperationRecorder(ChunkScheduler& scheduler, OperationObservers observers, Rank rank,
                                     uint32_t ranks)
    : scheduler_(scheduler),
      observers_(std::move(observers)),
      rank_(rank),
      ranks_(ranks),
      measurements_(OpTable::kCapacity) {}

void OperationRecorder::add_reducer(const std::string& name, uint32_t lanes) {
  for (uint32_t i = 0; i < lanes; ++i) {
    const auto index = static_cast<uint32_t>(lanes_.size());
    lanes_.emplace_back(*this, scheduler_.lane(index), index);
    reducer_of_lane_.push_back(static_cast<uint32_t>(reducers_.size()));
  }
  reducers_.emplace_back();
  for (const auto& observer : observers_) observer->on_reducer_added(name);
}

OperationRecorder::Measurement& OperationRecorder::measurement(uint32_t operation) noexcept {
  Measurement& m = measurements_[operation];
  const OpTable& table = scheduler_.table();
  const uint32_t generation = table[operation].generation;
  if (m.generation != generation) m = {.generation = generation, .record = begin_record(table, operation)};
  return m;
}

uint32_t OperationRecorder::chunk_put(uint64_t chunk, Nanos now) noexcept {
  const ChunkRecord& c = scheduler_.ring().record(chunk);
  if (c.chunk != chunk || c.done) return kNoOperation;
  OperationRecord& r = measurement(c.operation).record;
  if (r.first_put == 0) r.first_put = now;
  r.last_put = now;
  return c.operation;
}

void OperationRecorder::chunk_result(ChunkResult c) noexcept {
  if (c.info.last_rank >= ranks_) c.info = {};  // the value comes from the network
  // A kept result of another rank may have completed the chunk, and another operation uses the entry.
  if (scheduler_.ring().is_done(c.chunk)) return;
  const uint32_t bytes = scheduler_.ring().record(c.chunk).length;  // also if the result has no payload here
  Measurement& m = measurement(c.operation);
  const uint32_t reducer = reducer_of_lane_[c.lane];
  Nanos& shortest = reducers_[reducer].shortest[static_cast<size_t>(std::bit_width(bytes))];
  const Nanos duration = c.result - c.put;
  if (shortest == 0 || duration < shortest) shortest = duration;
  ChunkTiming timing{.chunk = c.chunk,
                     .op_id = m.record.op_id,
                     .bytes = bytes,
                     .reducer = reducer,
                     .lane = c.lane,
                     .put = c.put,
                     .result = c.result,
                     .parts = divide_round_trip({.duration = duration,
                                                 .shortest = shortest,
                                                 .bytes = bytes,
                                                 .ranks = ranks_,
                                                 .lag = Nanos{c.info.lag_us} * kMicrosecond,
                                                 .this_is_last = c.info.last_rank == rank_}),
                     .last_rank = c.info.last_rank,
                     .lag_us = c.info.lag_us};
  timing.parts.in_window = std::max<Nanos>(c.put - m.record.issued, 0);
  add_parts(m.sums, timing.parts);
  m.reducers |= uint64_t{1} << std::min(reducer, 63U);
  ++m.record.chunks;
  if (m.record.first_result == 0) m.record.first_result = c.result;
  if (c.info.lag_us > m.record.last_rank_lag_us) {
    m.record.last_rank = c.info.last_rank;
    m.record.last_rank_lag_us = c.info.lag_us;
  }
  for (const auto& observer : observers_) observer->on_chunk_ended(timing);
}

void OperationRecorder::operation_ended(uint32_t operation, Errc status) noexcept {
  Measurement& m = measurement(operation);
  m.record.status = status;
  m.record.done = monotonic_now();
  m.record.reducers = static_cast<uint32_t>(std::popcount(m.reducers));
  m.record.parts = scale_parts(m.sums, m.record.done - m.record.issued);
  // Numbers wrap, so the difference is compared.
  if (static_cast<int32_t>(m.record.op_id - next_op_id_) >= 0) next_op_id_ = m.record.op_id + 1;
  const uint32_t oldest = scheduler_.oldest_operation();
  m.record.oldest_open = oldest == kNoOperation ? next_op_id_ : scheduler_.table()[oldest].op_id;
  const std::span<const std::byte> result =
      status == Errc::kOk ? scheduler_.table().result(operation, rank_) : std::span<const std::byte>();
  for (const auto& observer : observers_) observer->on_operation_ended(m.record, result);
}

void OperationRecorder::report_stall(Nanos begin, Nanos end, const std::string& reason) noexcept {
  StallRecord stall{.begin = begin, .end = end};
  std::copy_n(reason.begin(), std::min(reason.size(), stall.reason.size() - 1), stall.reason.begin());
  for (const auto& observer : observers_) observer->on_stall_ended(stall);
}

void OperationRecorder::report_view_change(uint32_t version, uint32_t reducers) noexcept {
  for (const auto& observer : observers_)
    observer->on_view_changed({.at = monotonic_now(), .version = version, .reducers = reducers});
}

}  // namespace sluice::engine
