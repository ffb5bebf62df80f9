#include "gpu_client/engine/trace/trace_observer.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "config/file_pattern.h"
#include "core/clock.h"
#include "gpu_client/engine/trace/time_parts.h"

namespace sluice::engine {
namespace {

constexpr RecordWriter::Output kOutput{
    .noun = "trace", .variable = "SLUICE_TRACE", .thread = "sluice-trace", .max_bytes = kMaxTraceBytes};

}  // namespace

bool TraceObserver::is_requested() noexcept {
  return RecordWriter::is_requested(kOutput);
}

std::shared_ptr<TraceObserver> TraceObserver::create(const TraceSession& session) noexcept {
  try {
    auto writer = RecordWriter::open(kOutput, session.session, session.rank);
    if (!writer) return nullptr;
    std::shared_ptr<TraceObserver> observer(new TraceObserver(std::move(writer), session));
    std::string begin;
    observer->format_.begin(begin, config::host_name(), ::getpid());
    if (observer->writer_->start(*observer, begin)) return observer;
  } catch (const std::exception&) {  // out of memory: no trace
  }
  return nullptr;
}

TraceObserver::TraceObserver(std::unique_ptr<RecordWriter> writer, const TraceSession& session)
    : format_(session), writer_(std::move(writer)) {}

TraceObserver::~TraceObserver() {
  writer_->stop();
  if (lost_ == 0) return;
  try {
    writer_->warn("the trace \"" + writer_->path() + "\" lacks " + std::to_string(lost_) +
                  " records that were faster than its writer");
  } catch (const std::exception&) {  // out of memory: the file says it
  }
}

void TraceObserver::on_reducer_added(std::string_view name) noexcept {
  AddedReducer added{.reducer = static_cast<uint32_t>(reducers_.size())};
  std::copy_n(name.begin(), std::min(name.size(), added.name.size() - 1), added.name.begin());
  try {
    reducers_.push_back({.totals = {.reducer = added.reducer}});
  } catch (const std::exception&) {  // out of memory: no track for this reducer
    return;
  }
  static_cast<void>(records_.try_push(added));
}

void TraceObserver::on_operation_ended(const OperationRecord& operation,
                                       std::span<const std::byte> /*result*/) noexcept {
  if (writer_->has_failed()) return;
  OperationRecord record = operation;
  record.collective = collective_.load(std::memory_order_relaxed);
  static_cast<void>(records_.try_push(record));  // a full ring counts what it refuses
}

void TraceObserver::on_chunk_ended(const ChunkTiming& chunk) noexcept {
  if (writer_->has_failed() || chunk.reducer >= reducers_.size()) return;
  Reducer& r = reducers_[chunk.reducer];
  ++r.totals.chunks;
  r.totals.bytes += chunk.bytes;
  r.totals.at = chunk.result;
  add_parts(r.totals.parts, chunk.parts);
  if (chunk.put >= r.next_sample) {
    r.next_sample = std::max(chunk.result, chunk.put + kSampleInterval);
    static_cast<void>(records_.try_push(chunk));
  }
  if (chunk.result >= r.next_totals) {
    r.next_totals = chunk.result + kTotalsInterval;
    static_cast<void>(records_.try_push(r.totals));
  }
}

void TraceObserver::on_stall_ended(const StallRecord& stall) noexcept {
  if (!writer_->has_failed()) static_cast<void>(recovery_records_.try_push(stall));
}

void TraceObserver::on_view_changed(const ViewChangeRecord& change) noexcept {
  if (!writer_->has_failed()) static_cast<void>(recovery_records_.try_push(change));
}

void TraceObserver::on_collective_running(uint64_t number) noexcept {
  collective_.store(number, std::memory_order_relaxed);
}

void TraceObserver::on_collective_ended(const CollectiveRecord& collective) noexcept {
  if (!writer_->has_failed()) static_cast<void>(collectives_.try_push(CollectiveRecord(collective)));
}

Result<void> TraceObserver::append_records(RecordWriter& writer, bool last) {
  TraceRecord record;
  for (SpscRing<TraceRecord>* const ring : {&records_, &recovery_records_}) {
    while (ring->try_pop(record)) {
      format_.append(writer.text(), record);
      SLUICE_RETURN_IF_ERROR(writer.flush_if_large());
    }
  }
  CollectiveRecord collective;
  while (collectives_.try_pop(collective)) format_.append(writer.text(), collective);
  const uint64_t lost = records_.full_count() + recovery_records_.full_count() + collectives_.full_count();
  if (lost != lost_) format_.append_lost(writer.text(), monotonic_now(), lost - lost_);
  lost_ = lost;
  for (size_t i = 0; last && i < reducers_.size(); ++i) format_.append(writer.text(), reducers_[i].totals);
  return {};
}

void TraceObserver::append_end(std::string& out, std::string_view reason) {
  format_.end(out, monotonic_now(), reason);
}

}  // namespace sluice::engine
