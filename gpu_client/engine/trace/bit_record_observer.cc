#include "gpu_client/engine/trace/bit_record_observer.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/crc32c.h"

namespace sluice::engine {
namespace {

constexpr RecordWriter::Output kBitRecordOutput{.noun = "bit record",
                                                .variable = "SLUICE_BITS",
                                                .thread = "sluice-bits",
                                                .max_bytes = kMaxBitRecordBytes};

}  // namespace

bool BitRecordObserver::is_requested() noexcept {
  return RecordWriter::is_requested(kBitRecordOutput);
}

std::shared_ptr<BitRecordObserver> BitRecordObserver::create(const BitRecordSession& session) noexcept {
  try {
    auto writer = RecordWriter::open(kBitRecordOutput, session.session, session.rank);
    if (!writer) return nullptr;
    std::shared_ptr<BitRecordObserver> observer(new BitRecordObserver(std::move(writer)));
    if (observer->writer_->start(*observer, bit_record_begin(session))) return observer;
  } catch (const std::exception&) {  // out of memory: no bit record
  }
  return nullptr;
}

// The numbers of the protocol wrap after 2^32 operations, those of the record do not.
uint64_t BitRecordObserver::number_of(uint32_t op_id) noexcept {
  const auto step = static_cast<int32_t>(op_id - static_cast<uint32_t>(last_number_));
  return last_number_ + static_cast<uint64_t>(int64_t{step});
}

void BitRecordObserver::on_operation_ended(const OperationRecord& operation,
                                           std::span<const std::byte> result) noexcept {
  if (is_full_ || writer_->has_failed()) return;
  EndedOperation ended{.operation = {.number = number_of(operation.op_id),
                                     .count = operation.count,
                                     .state = operation.on_device ? ResultState::kOnDevice
                                              : result.empty()    ? ResultState::kNone
                                                                  : ResultState::kHashed,
                                     .kind = operation.kind,
                                     .dtype = operation.dtype,
                                     .op = operation.op},
                       .status = operation.status};
  if (ended.operation.state == ResultState::kHashed) ended.operation.crc = crc32c(result);
  last_number_ = std::max(last_number_, ended.operation.number);
  ended.oldest_open = number_of(operation.oldest_open);
  is_full_ = !ended_.try_push(ended);
}

// Operations end out of order, at each rank in another one, and the running hash must not depend on that.
Result<void> BitRecordObserver::append_records(RecordWriter& writer, bool /*last*/) {
  EndedOperation ended;
  while (ended_.try_pop(ended)) {
    const auto place = std::ranges::upper_bound(waiting_, ended.operation.number, {},
                                                [](const EndedOperation& e) { return e.operation.number; });
    waiting_.insert(place, ended);
    SLUICE_RETURN_IF_ERROR(append_until(writer, ended.oldest_open));
  }
  if (ended_.full_count() == 0) return {};
  return fail(Errc::kExhausted, "operations ended faster than the file could be written");
}

Result<void> BitRecordObserver::append_until(RecordWriter& writer, uint64_t oldest_open) {
  auto end = waiting_.begin();
  for (; end != waiting_.end() && end->operation.number < oldest_open; ++end) {
    if (end->status != Errc::kOk && failed_operation_.empty()) {
      (failed_operation_ = "operation " + std::to_string(end->operation.number) + " failed: ") +=
          to_string(end->status);
    }
    if (!failed_operation_.empty()) continue;
    append_operation(writer.text(), end->operation, running_);
    SLUICE_RETURN_IF_ERROR(writer.flush_if_large());
  }
  waiting_.erase(waiting_.begin(), end);
  return {};
}

void BitRecordObserver::append_end(std::string& out, std::string_view reason) {
  append_bit_record_end(out, reason.empty() ? std::string_view(failed_operation_) : reason);
}

}  // namespace sluice::engine
