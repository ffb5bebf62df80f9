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
  const engine::Operation& o = table_[op];
  const Times& t = times(op);
  const Nanos now = monotonic_now();
  // In the order of their numbers, so the next one is the oldest.
  engine::OperationRecord record{.handle = table_.handle_of(op),
                                 .op_id = o.op_id,
                                 .bytes = o.bytes,
                                 .count = o.request.count,
                                 .kind = o.request.kind,
                                 .dtype = o.request.dtype,
                                 .op = o.request.op,
                                 .status = status,
                                 .oldest_open = o.op_id + 1,
                                 .issued = o.request.issued,
                                 .first_put = t.first_arrival,
                                 .last_put = t.last_arrival,
                                 .first_result = t.first_end,
                                 .done = now,
                                 .chunks = t.pieces};
  record.parts.in_window = (t.first_arrival != 0 ? t.first_arrival : now) - o.request.issued;
  record.parts.on_wire = now - o.request.issued - record.parts.in_window;
  const std::span<const std::byte> result =
      status == Errc::kOk ? table_.result(op, rank_) : std::span<const std::byte>();
  for (const auto& observer : observers_) observer->on_operation_ended(record, result);
}

}  // namespace sluice::local
