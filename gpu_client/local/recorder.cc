#include "gpu_client/local/recorder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/clock.h"

namespace sluice::local {

Recorder::Recorder(const engine::OpTable& table, engine::OperationObservers observers, Rank rank)
    : table_(table), observers_(std::move(observers)), rank_(rank), times_(engine::OpTable::kCapacity) {}

Recorder::Times& Recorder::times(uint32_t op) noexcept {
  Times& t = times_[op];
  if (t.generation != table_[op].generation) t = {.generation = table_[op].generation};
  return t;
}

void Recorder::piece_arrived(uint32_t op) noexcept {
  Times& t = times(op);
  t.last_arrival = monotonic_now();
  if (t.first_arrival == 0) t.first_arrival = t.last_arrival;
}

void Recorder::piece_ended(uint32_t op) noexcept {
  Times& t = times(op);
  ++t.pieces;
  if (t.first_end == 0) t.first_end = monotonic_now();
}

void Recorder::operation_ended(uint32_t op, Errc status) noexcept {
  const Times& t = times(op);
  const Nanos now = monotonic_now();
  engine::OperationRecord record = engine::begin_record(table_, op);
  record.status = status;
  record.oldest_open = record.op_id + 1;  // operations end in the order of their numbers
  record.first_put = t.first_arrival;
  record.last_put = t.last_arrival;
  record.first_result = t.first_end;
  record.done = now;
  record.chunks = t.pieces;
  record.parts.in_window = (t.first_arrival != 0 ? t.first_arrival : now) - record.issued;
  record.parts.on_wire = now - record.issued - record.parts.in_window;
  const std::span<const std::byte> result =
      status == Errc::kOk ? table_.result(op, rank_) : std::span<const std::byte>();
  for (const auto& observer : observers_) observer->on_operation_ended(record, result);
}

}  // namespace sluice::local
