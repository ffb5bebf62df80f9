#include "gpu_client/engine/trace/trace_observer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <utility>

#include "config/file_pattern.h"
#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"
#include "gpu_client/engine/trace/time_parts.h"

namespace sluice::engine {
namespace {

constexpr size_t kWriteBytes = 256 * kKiB;
// How often the writer looks at the rings. A killed process loses the events of this time. No thread wakes
// the writer, because that would cost the progress loop a system call.
constexpr auto kWriteInterval = std::chrono::milliseconds(20);

}  // namespace

bool TraceObserver::is_requested() noexcept {
  const char* const pattern = std::getenv("SLUICE_TRACE");
  return pattern != nullptr && *pattern != '\0';
}

std::shared_ptr<TraceObserver> TraceObserver::create(const TraceSession& session) noexcept {
  if (!is_requested()) return nullptr;
  const char* const pattern = std::getenv("SLUICE_TRACE");
  try {
    const std::string path = trace_path(pattern, session.session, session.rank);
    auto file = TraceFile::open(path);
    Result<void> started = file ? Result<void>() : tl::unexpected(file.error());
    if (file) {
      std::shared_ptr<TraceObserver> observer(new TraceObserver(std::move(*file), path, session));
      started = observer->start();
      if (started) return observer;
    }
    SessionLog(session.session, session.rank)
        .warn("no trace: cannot write to SLUICE_TRACE \"" + path + "\": " + started.error().text);
  } catch (const std::exception&) {  // out of memory: no trace
  }
  return nullptr;
}

TraceObserver::TraceObserver(TraceFile file, std::string path, const TraceSession& session)
    : path_(std::move(path)), log_(session.session, session.rank), file_(std::move(file)), format_(session) {}

Result<void> TraceObserver::start() {
  format_.begin(text_, config::host_name(), ::getpid());
  SLUICE_RETURN_IF_ERROR(write_text());
  SLUICE_ASSIGN_OR_RETURN(thread, start_thread("sluice-trace", [this] { run(); }));
  thread_ = std::move(thread);
  return {};
}

TraceObserver::~TraceObserver() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
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

void TraceObserver::on_operation_ended(const OperationRecord& operation) noexcept {
  if (failed_.load(std::memory_order_relaxed)) return;
  OperationRecord record = operation;
  record.collective = collective_.load(std::memory_order_relaxed);
  static_cast<void>(records_.try_push(record));  // a full ring counts what it refuses
}

void TraceObserver::on_chunk_ended(const ChunkTiming& chunk) noexcept {
  if (failed_.load(std::memory_order_relaxed) || chunk.reducer >= reducers_.size()) return;
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
  if (!failed_.load(std::memory_order_relaxed)) static_cast<void>(recovery_records_.try_push(stall));
}

void TraceObserver::on_view_changed(const ViewChangeRecord& change) noexcept {
  if (!failed_.load(std::memory_order_relaxed)) static_cast<void>(recovery_records_.try_push(change));
}

void TraceObserver::on_collective_running(uint64_t number) noexcept {
  collective_.store(number, std::memory_order_relaxed);
}

void TraceObserver::on_collective_ended(const CollectiveRecord& collective) noexcept {
  if (!failed_.load(std::memory_order_relaxed))
    static_cast<void>(collectives_.try_push(CollectiveRecord(collective)));
}

void TraceObserver::run() noexcept {
  std::string error;
  try {
    const Result<void> written = write_until_stopped();
    if (!written) error = written.error().text;
  } catch (const std::exception& e) {
    error = e.what();
  }
  failed_.store(true, std::memory_order_relaxed);
  try {
    text_.clear();
    format_.end(text_, monotonic_now(), error);
    const Result<void> ended = file_.finish(text_);
    if (error.empty() && !ended) error = ended.error().text;
    if (!error.empty())
      log_.warn("the trace ends early: cannot write to SLUICE_TRACE \"" + path_ + "\": " + error);
    if (lost_ != 0)
      log_.warn("the trace \"" + path_ + "\" lacks " + std::to_string(lost_) +
                " records that were faster than its writer");
  } catch (const std::exception&) {  // out of memory: the file has no end
  }
}

Result<void> TraceObserver::write_until_stopped() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool last = stop_.wait_for(lock, kWriteInterval, [this] { return stopping_; });
    lock.unlock();
    SLUICE_RETURN_IF_ERROR(write_records());
    if (last) break;
    lock.lock();
  }
  for (const Reducer& r : reducers_) format_.append(text_, r.totals);
  return write_text();
}

Result<void> TraceObserver::write_records() {
  TraceRecord record;
  for (SpscRing<TraceRecord>* const ring : {&records_, &recovery_records_}) {
    while (ring->try_pop(record)) {
      format_.append(text_, record);
      if (text_.size() >= kWriteBytes) SLUICE_RETURN_IF_ERROR(write_text());
    }
  }
  CollectiveRecord collective;
  while (collectives_.try_pop(collective)) format_.append(text_, collective);
  const uint64_t lost = records_.full_count() + recovery_records_.full_count() + collectives_.full_count();
  if (lost != lost_) format_.append_lost(text_, monotonic_now(), lost - lost_);
  lost_ = lost;
  return write_text();
}

Result<void> TraceObserver::write_text() {
  if (text_.empty()) return {};
  const Result<void> written = file_.append(text_);
  text_.clear();
  return written;
}

}  // namespace sluice::engine
