#include "gpu_client/pipeline/stream_pump.h"

#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"

namespace sluice::pipeline {
namespace {

// Operations open at the session, whose table has 1024 entries. The staging bounds how much is copied out
// ahead of the network; this bounds operations that are reduced in place in the caller's buffers.
constexpr size_t kMaxSessionOperations = 64;

}  // namespace

Result<void> StreamPump::start() {
  auto out = engine::start_thread("sluice-out", [this] { run_out(); });
  if (!out) return tl::unexpected(out.error());
  out_thread_ = std::move(*out);
  auto in = engine::start_thread("sluice-in", [this] { run_in(); });
  if (!in) return tl::unexpected(in.error());
  in_thread_ = std::move(*in);
  return {};
}

std::unique_ptr<Event> StreamPump::acquire_spare_event() {
  const std::lock_guard lock(mutex_);
  if (spare_events_.empty()) return nullptr;
  auto event = std::move(spare_events_.back());
  spare_events_.pop_back();
  return event;
}

void StreamPump::submit(NetworkOperation network) {
  std::list<NetworkOperation> current;
  current.push_back(std::move(network));
  std::unique_lock lock(mutex_);
  // Allocates here, where failure is allowed, so that complete() allocates nothing.
  const size_t needed = spare_events_.size() + inflight_ + 1;
  if (spare_events_.capacity() < needed) spare_events_.reserve(2 * needed);
  ++current.front().operation->unfinished;
  ++inflight_;
  // A contribution that is in place, as those in host memory are, needs no thread that waits for it. The
  // thread would have to wake up first, which takes longer than a small operation.
  const bool starts_now =
      !current.front().ready && out_.empty() && !is_starting_ && in_.size() < kMaxSessionOperations;
  if (!starts_now) {
    out_.splice(out_.end(), current);
    lock.unlock();
    out_ready_.notify_one();
    return;
  }
  start_unlocked(lock, current);
  lock.unlock();
  in_ready_.notify_one();
}

uint64_t StreamPump::inflight() {
  const std::lock_guard lock(mutex_);
  return inflight_;
}

void StreamPump::finish_submission(StreamOperation& operation, Errc failure) {
  {
    const std::lock_guard lock(mutex_);
    finish_one(operation, failure);
  }
  finished_.notify_all();
}

void StreamPump::finish_one(StreamOperation& operation, Errc status) noexcept {
  if (operation.status == Errc::kOk) operation.status = status;
  if (--operation.unfinished != 0) return;
  if (operation.status == Errc::kOk) counters_.operations += operation.caller_operations;
  report_finding(operation);
}

void StreamPump::report_finding(const StreamOperation& operation) noexcept {
  const auto finding = operation.findings.result(operation.segments);
  if (finding) session_.findings().push({.request = operation.request, .finding = *finding});
}

bool StreamPump::wait(const StreamOperation& operation, Nanos deadline, Errc& result) {
  std::unique_lock lock(mutex_);
  const auto is_finished = [&] { return operation.is_finished(); };
  if (deadline == engine::kNoDeadline) {
    finished_.wait(lock, is_finished);
  } else {
    const Nanos left = deadline - monotonic_now();
    if (!finished_.wait_for(lock, std::chrono::nanoseconds(left > 0 ? left : 0), is_finished)) return false;
  }
  result = operation.status;
  return true;
}

StreamPump::Counters StreamPump::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void StreamPump::close(Nanos deadline) {
  std::unique_lock lock(mutex_);
  if (!out_thread_.joinable()) return;
  const auto is_idle = [this] { return inflight_ == 0; };
  const Nanos left = deadline - monotonic_now();
  if (!finished_.wait_for(lock, std::chrono::nanoseconds(left > 0 ? left : 0), is_idle)) {
    lock.unlock();
    session_.abort(Errc::kTimeout, "session closed while operations on streams were in flight");
    lock.lock();
    finished_.wait(lock, is_idle);
  }
  closing_ = true;
  lock.unlock();
  out_ready_.notify_one();
  in_ready_.notify_one();
  out_thread_.join();
  if (in_thread_.joinable()) in_thread_.join();
}

void StreamPump::run_out() noexcept {
  std::list<NetworkOperation> current;
  std::unique_lock lock(mutex_);
  for (;;) {
    out_ready_.wait(lock,
                    [this] { return closing_ || (!out_.empty() && in_.size() < kMaxSessionOperations); });
    if (out_.empty()) return;
    current.splice(current.begin(), out_, out_.begin());
    start_unlocked(lock, current);
    in_ready_.notify_one();
  }
}

void StreamPump::start_unlocked(std::unique_lock<std::mutex>& lock,
                                std::list<NetworkOperation>& current) noexcept {
  is_starting_ = true;
  lock.unlock();
  start_reduction(current.front());
  lock.lock();
  is_starting_ = false;
  in_.splice(in_.end(), current);
}

void StreamPump::start_reduction(NetworkOperation& network) noexcept {
  try {
    if (network.ready) network.status = device_.synchronize(*network.ready);
    if (!network.status.ok()) return session_.abort(Errc::kSystem, device_.last_error());
    network.request.counts = network.counts;
    network.request.finding = &network.finding;  // the list's nodes do not move
    network.status = session_.start(network.request, network.handle);
    // The session must fail: the other ranks would reduce this rank's next operation in place of this one.
    if (!network.status.ok() && session_.code() == Errc::kOk)
      session_.abort(network.status.code(), "session refused a segment of an operation on a stream");
  } catch (const std::exception&) {
    network.status = Errc::kSystem;
    session_.abort(Errc::kSystem, {});
  }
}

void StreamPump::run_in() noexcept {
  std::list<NetworkOperation> current;
  std::unique_lock lock(mutex_);
  for (;;) {
    in_ready_.wait(lock, [this] { return closing_ || !in_.empty(); });
    if (in_.empty()) return;
    current.splice(current.begin(), in_, in_.begin());
    const bool has_more = !out_.empty();
    lock.unlock();
    if (has_more) out_ready_.notify_one();  // in_ has room
    NetworkOperation& network = current.front();
    if (network.handle != 0) network.status = session_.wait(network.handle, engine::kNoDeadline);
    lock.lock();
    // Counts first: a caller that synchronizes with a stream expects its operations in the counters.
    const bool notify = complete(network);
    lock.unlock();
    device_.write_value(completion_word_, network.number);
    current.clear();
    if (notify) finished_.notify_all();
    lock.lock();
  }
}

bool StreamPump::complete(NetworkOperation& network) noexcept {
  if (network.is_segment) {
    ++counters_.segments;
    ++network.operation->segments;
    if (network.finding) network.operation->findings.add(*network.finding);
  }
  if (network.ready) spare_events_.push_back(std::move(network.ready));  // submit() has reserved the space
  --inflight_;
  finish_one(*network.operation, network.status.code());
  return inflight_ == 0 || network.operation->is_finished();
}

}  // namespace sluice::pipeline
