#include "gpu_client/engine/data_path/chunk_scheduler.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <utility>

#include "core/assert.h"
#include "gpu_client/engine/base/peer_error.h"
#include "wire/messages.h"

namespace sluice::engine {

Result<std::unique_ptr<ChunkScheduler>> ChunkScheduler::create(Options options, OpTable& table,
                                                               Listener& listener) {
  SLUICE_ASSERT(!options.lanes.empty() && !options.placement.empty() && options.slot_bytes > 0);
  SLUICE_ASSERT(options.keep_results || !options.fault_tolerant);
  uint32_t depth = 0;
  for (const LaneOptions& l : options.lanes) depth += l.slots;
  auto ring = ChunkRing::create(depth, options.slot_bytes, options.rank);
  if (!ring) return tl::unexpected(ring.error());
  return std::unique_ptr<ChunkScheduler>(
      new ChunkScheduler(std::move(options), table, listener, std::move(*ring)));
}

ChunkScheduler::ChunkScheduler(Options options, OpTable& table, Listener& listener, ChunkRing ring)
    : options_(std::move(options)),
      table_(table),
      listener_(listener),
      view_{.hash = options_.view_hash},
      ring_(std::move(ring)),
      placement_(options_.placement),
      inflight_limit_(
          std::ranges::max(options_.lanes, {}, &LaneOptions::slots).slots, InflightLimit::kFirst,
          uint64_t{options_.slot_bytes} * std::max<size_t>(options_.ranks, options_.lanes.size())),
      straggler_stats_(options_.ranks, options_.begin) {
  const auto count = static_cast<uint32_t>(options_.lanes.size());
  for (uint32_t i = 0; i < count; ++i) add_lane(options_.lanes[i]);
  std::vector<LaneConnection::Share> all = assign_shares();
  for (uint32_t i = 0; i < count; ++i) lanes_[i].restart(std::move(all[i]), 0);
  clock_lane_ = std::ranges::min(placement_);
  next_lane_ = options_.rank % count;
}

uint32_t ChunkScheduler::add_lane(const LaneOptions& options) {
  SLUICE_ASSERT(options.slots > 0 && options.slots <= 0xffff);
  const auto index = static_cast<uint32_t>(lanes_.size());
  lanes_.emplace_back(*this, LaneConnection::Options{.index = index,
                                                     .handle = options.handle,
                                                     .slots = options.slots,
                                                     .sparse = options.sparse,
                                                     .path = options.path,
                                                     .keep_results = options_.keep_results});
  last_issue_.push_back(0);
  return index;
}

std::vector<LaneConnection::Share> ChunkScheduler::assign_shares() {
  std::vector<LaneConnection::Share> all(lanes_.size());
  for (LaneConnection::Share& share : all) share.period = static_cast<uint32_t>(placement_.size());
  for (uint32_t t = 0; t < placement_.size(); ++t) {
    SLUICE_ASSERT(placement_[t] < all.size());
    all[placement_[t]].turns.push_back(t);
  }
  connections_in_use_ = 0;
  size_t least = placement_.size();
  size_t most = 0;
  for (const LaneConnection::Share& share : all) {
    if (share.turns.empty()) continue;
    ++connections_in_use_;
    least = std::min(least, share.turns.size());
    most = std::max(most, share.turns.size());
  }
  has_equal_shares_ = least == most;
  return all;
}

transport::EndpointOptions ChunkScheduler::endpoint_options(uint32_t i) const noexcept {
  transport::EndpointOptions o;
  o.send_queue = lanes_[i].slots() + 1;  // and COMMIT, RESUME or VIEW_COMMIT
  o.max_payload = std::max<uint32_t>(options_.slot_bytes, LaneConnection::kControlBytes);
  return o;
}

Status ChunkScheduler::begin() noexcept {
  for (LaneConnection& l : lanes_) {
    if (const Status s = l.begin(); !s.ok()) return s;
  }
  return Errc::kOk;
}

void ChunkScheduler::issue(uint32_t op) noexcept {
  Operation& o = table_[op];
  if (first_open_ == kNoOperation) busy_since_ = now_;
  o.previous = last_open_;
  o.next = kNoOperation;
  (last_open_ == kNoOperation ? first_open_ : table_[last_open_].next) = op;
  last_open_ = op;
  record(blackbox::EventKind::kOperationBegan, o, Errc::kOk);
  queue_operation(op, o.first_chunk);
}

void ChunkScheduler::record(blackbox::EventKind kind, const Operation& o, Errc status) const noexcept {
  options_.blackbox.record_frequent(kind, {.peer = static_cast<uint64_t>(o.request.kind),
                                           .a = o.op_id,
                                           .b = o.bytes,
                                           .code = status,
                                           .at = now_});
}

// Tells each lane connection that has a chunk of the operation at or after `from`. Takes at most one step per
// chunk.
void ChunkScheduler::queue_operation(uint32_t op, uint64_t from) noexcept {
  const Operation& o = table_[op];
  const uint64_t end = o.first_chunk + o.chunk_count;
  if (from >= end) return;
  ++issues_;
  const uint64_t period = placement_.size();
  const uint64_t steps = std::min<uint64_t>(end - from, period);
  for (uint64_t i = 0; i < steps; ++i) {
    const uint32_t l = placement_[(from + i) % period];
    if (std::exchange(last_issue_[l], issues_) != issues_) lanes_[l].add_operation(op);
  }
}

uint32_t ChunkScheduler::operation_of(uint64_t chunk) const noexcept {
  for (uint32_t op = first_open_; op != kNoOperation; op = table_[op].next) {
    const Operation& o = table_[op];
    if (chunk >= o.first_chunk && chunk < o.first_chunk + o.chunk_count) return op;
  }
  return kNoOperation;
}

void ChunkScheduler::stop() noexcept {
  stopped_ = true;
  for (LaneConnection& l : lanes_) l.recall();
}

bool ChunkScheduler::is_quiescent() const noexcept {
  return stopped_ && std::ranges::all_of(lanes_, &LaneConnection::is_quiescent);
}

void ChunkScheduler::restart(const View& view, const std::vector<uint32_t>& placement,
                             const std::vector<uint32_t>& standby) {
  SLUICE_ASSERT(is_quiescent() && view.base <= first_unfinished() &&
                view.base + depth() >= first_unfinished());
  view_ = view;
  placement_ = placement;
  resend_until_ = put_until_;
  std::vector<LaneConnection::Share> all = assign_shares();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const bool removed = all[i].turns.empty() && std::ranges::find(standby, i) == standby.end();
    if (removed) lanes_[i].close(Errc::kReset);
    lanes_[i].restart(std::move(all[i]), view.base);
    if (removed && !lanes_[i].is_bound()) lanes_[i].retire();
  }
  for (uint32_t op = first_open_; op != kNoOperation; op = table_[op].next)
    queue_operation(op, std::max(table_[op].first_chunk, resend_until_));
  clock_lane_ = std::ranges::min(placement_);
  inflight_limit_.restart();
  stopped_ = false;
}

size_t ChunkScheduler::put_chunks(size_t budget) noexcept {
  if (has_ended() || stopped_) return 0;
  size_t total = 0;
  const auto count = static_cast<uint32_t>(lanes_.size());
  for (uint32_t idle = 0; idle < count && total < budget;) {
    const size_t put = lanes_[next_lane_].put_next();
    total += put;
    idle = put == 0 ? idle + 1 : 0;
    if (++next_lane_ == count) next_lane_ = 0;
  }
  return total;
}

void ChunkScheduler::chunk_done(uint32_t op) noexcept {
  Operation& o = table_[op];
  if (++o.chunks_done < o.chunk_count) return;
  (o.previous == kNoOperation ? first_open_ : table_[o.previous].next) = o.next;
  (o.next == kNoOperation ? last_open_ : table_[o.next].previous) = o.previous;
  ++operations_done_;
  if (first_open_ == kNoOperation) {
    inflight_limit_.idle(now_);
    busy_time_ += now_ - busy_since_;
  }
  if (recorder_ != nullptr) recorder_->operation_ended(op, Errc::kOk);
  report_finding(op);
  record(blackbox::EventKind::kOperationEnded, o, Errc::kOk);
  table_.end(op, Errc::kOk);
}

void ChunkScheduler::report_finding(uint32_t op) noexcept {
  const Operation& o = table_[op];
  const auto finding = o.findings.result(o.chunk_count);
  if (!finding) return;
  if (o.request.finding != nullptr) {
    *o.request.finding = finding;
  } else {
    listener_.on_finding(op, *finding);
  }
}

void ChunkScheduler::end(Errc code) noexcept {
  if (has_ended()) return;
  session_end_.code = code;
  close_lanes();
}

void ChunkScheduler::close_lanes() noexcept {
  // kClosed: the connections themselves did not fail, so the transport must not count an error for them.
  for (LaneConnection& l : lanes_) l.close(Errc::kClosed);
}

void ChunkScheduler::fail_open_operations(Errc code) noexcept {
  SLUICE_DASSERT(is_drained());
  while (first_open_ != kNoOperation) {
    const uint32_t op = first_open_;
    first_open_ = table_[op].next;
    if (recorder_ != nullptr) recorder_->operation_ended(op, code);
    record(blackbox::EventKind::kOperationEnded, table_[op], code);
    table_.end(op, code);
  }
  last_open_ = kNoOperation;
}

Errc ChunkScheduler::report_failure(uint32_t lane, Errc code, const char* format, ...) noexcept {
  if (has_ended()) return code;
  const bool only_connection = options_.fault_tolerant && lane != kNoLane;
  SchedulerFailure& e = only_connection ? last_failure_ : session_end_;
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(e.text.data(), e.text.size(), format, args);
  va_end(args);
  if (only_connection) {
    e.code = code;
    e.lane = lane;
  } else {
    end_with(lane, code);
  }
  return code;
}

void ChunkScheduler::end_with(uint32_t lane, Errc code) noexcept {
  session_end_.code = code;
  session_end_.lane = lane;
  listener_.on_scheduler_ended(session_end_);
  close_lanes();
}

void ChunkScheduler::result_received(uint32_t lane, bool losses, uint64_t bytes) noexcept {
  if (losses && lane != clock_lane_) packet_loss_seen();
  if (makes_trials()) inflight_limit_.result(lane == clock_lane_, losses, bytes, now_);
}

void ChunkScheduler::packet_loss_seen() noexcept {
  lanes_[clock_lane_].flag_packet_loss();
}

void ChunkScheduler::abort_received(uint32_t lane, std::span<const std::byte> body) noexcept {
  wire::Abort abort;
  try {
    if (const Status s = wire::decode_body(body, abort); !s.ok()) {
      static_cast<void>(report_failure(lane, s.code(), "malformed ABORT"));
      return;
    }
  } catch (const std::exception&) {  // out of memory for the text
    abort.code = Errc::kAborted;
  }
  if (has_ended()) return;
  session_end_.from_peer = true;
  session_end_.rank = abort.rank;
  std::snprintf(session_end_.text.data(), session_end_.text.size(), "%s", abort.text.c_str());
  end_with(lane, code_from_peer(abort.code));
}

void ChunkScheduler::lane_resumed(uint32_t lane) noexcept {
  if (!has_ended()) listener_.on_lane_resumed(lane);
}

void ChunkScheduler::lane_closed(uint32_t lane, Errc reason) noexcept {
  SLUICE_DASSERT(open_lanes_ > 0);
  --open_lanes_;
  if (!has_ended()) listener_.on_lane_lost(lane, reason);
}

ChunkScheduler::Counters ChunkScheduler::counters() const noexcept {
  Counters sum;
  sum.open_lanes = open_lanes_;
  for (const LaneConnection& l : lanes_) {
    sum.lanes += l.counters();
    sum.bytes_resent += l.bytes_resent();
    sum.results_copied += l.bytes_copied();
    sum.rdma_lanes += l.over_rdma() ? 1 : 0;
  }
  return sum;
}

}  // namespace sluice::engine
