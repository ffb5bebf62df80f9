// The arithmetic of LaneSession: fold tasks run in the order they became due, slice by slice, and each result
// is put to every rank.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/assert.h"
#include "core/crc32c.h"
#include "reducer/lane/lane_session.h"
#include "wire/payload/sparse.h"

namespace sluice::reducer {
namespace {

// The length of `count` small extensions as frame headers have it.
uint8_t extension_units(unsigned count) noexcept {
  return static_cast<uint8_t>(count * wire::kSmallExtensionBytes / 8);
}

}  // namespace

void LaneSession::push_task(uint32_t slot, uint32_t group) noexcept {
  SLUICE_DASSERT(task_tail_ - task_head_ < tasks_.size());
  tasks_[task_tail_++ % tasks_.size()] = {.slot = slot, .group = group};
  if (folds_ != Folds::kNone) return;
  folds_ = Folds::kListed;
  work_->folds.push_back(this);
}

size_t LaneSession::fold(size_t output_budget) noexcept {
  size_t done = 0;
  while (done < output_budget && has_folds()) {
    const FoldTask task = tasks_[task_head_ % tasks_.size()];
    bool complete = false;
    done += fold_slice(task, output_budget - done, complete);
    if (!complete) break;
    ++task_head_;
    task_element_ = 0;
    task_complete(task);
    task_crc_ = 0;
    if (!meter_.may_serve()) break;
  }
  return done;
}

// Folds one slice of the head task. A session of one group folds contributions into the result in one pass. A
// larger session makes a partial sum per group when the group is complete; a final pass adds the partial
// sums.
size_t LaneSession::fold_slice(const FoldTask& task, size_t output_budget, bool& complete) noexcept {
  const ChunkSlot& c = chunks_[task.slot];
  // Groups of a copied chunk may be complete before its owner has contributed.
  if (c.kept || wire::copies(c.reference.kind)) return copy_kept_slice(task, output_budget, complete);
  const wire::FrameHeader& h = c.reference;
  const size_t wire_size = wire::size_of(h.wire_dtype);
  const size_t acc_size = wire::accumulated_size_of(h.wire_dtype);
  const size_t total = h.length / wire_size;
  const kernels::Stage stage = groups_ == 1           ? kernels::Stage::kWhole
                               : task.group < groups_ ? kernels::Stage::kPartial
                                                      : kernels::Stage::kFinish;
  const size_t out_size = stage == kernels::Stage::kPartial ? acc_size : wire_size;
  const size_t in_size = stage == kernels::Stage::kFinish ? acc_size : wire_size;
  const size_t count = std::min(total - task_element_, std::max<size_t>(output_budget / out_size, 1));

  size_t sources = 0;
  if (stage == kernels::Stage::kFinish) {
    for (; sources < groups_; ++sources) {
      sources_[sources] = arena_.partial(task.slot, static_cast<uint32_t>(sources)) + task_element_ * in_size;
    }
  } else {
    const uint32_t first = task.group * static_cast<uint32_t>(kernels::kGroup);
    const uint32_t end = std::min<uint32_t>(first + static_cast<uint32_t>(kernels::kGroup), plan_.ranks);
    for (uint32_t rank = first; rank < end; ++rank) {
      sources_[sources++] = arena_.contribution(rank, task.slot) + task_element_ * in_size;
    }
  }
  std::byte* const out =
      (stage == kernels::Stage::kPartial ? arena_.partial(task.slot, task.group) : arena_.result(task.slot)) +
      task_element_ * out_size;
  const kernels::FoldFunction function = kernels::find_fold(h.wire_dtype, h.op, stage, plan_.order);
  if (health_ != nullptr && stage != kernels::Stage::kFinish) {
    fold_and_scan(task, function, sources, count, out_size, out);
  } else {
    function({sources_.data(), sources}, count, plan_.ranks, out);
  }
  if (stage != kernels::Stage::kPartial && plan_.payload_crc) {
    task_crc_ = crc32c({out, count * out_size}, task_crc_);  // while the slice is in the cache
  }
  if (stage != kernels::Stage::kFinish) {
    counters_->folded[static_cast<size_t>(h.wire_dtype)][static_cast<size_t>(h.op)].add(sources * count *
                                                                                        wire_size);
  }
  virtual_time_ += static_cast<double>(sources * count * in_size) / plan_.weight;
  task_element_ += count;
  complete = task_element_ == total;
  return count * out_size;
}

// Folds `count` elements of the contributions at sources_ in parts, and scans each part while the cache holds
// it.
void LaneSession::fold_and_scan(const FoldTask& task, kernels::FoldFunction function, size_t sources,
                                size_t count, size_t out_size, std::byte* out) noexcept {
  const wire::DType type = chunks_[task.slot].reference.wire_dtype;
  const kernels::ScanFunction scan = kernels::find_scan(type);
  const size_t size = wire::size_of(type);
  const size_t most = HealthMonitor::kPartBytes / size;
  const auto first_rank = task.group * static_cast<Rank>(kernels::kGroup);
  std::array<const std::byte*, kernels::kGroup> part;
  for (size_t done = 0; done < count; done += most) {
    const size_t elements = std::min(most, count - done);
    for (size_t i = 0; i < sources; ++i) part[i] = sources_[i] + done * size;
    const std::span<const std::byte* const> parts(part.data(), sources);
    function(parts, elements, plan_.ranks, out + done * out_size);
    health_->scan(scan, task.slot, first_rank, parts, task_element_ + done, elements);
  }
}

// Adds what the scans of the chunk show to its result.
void LaneSession::add_finding(uint32_t slot) noexcept {
  SentResult& result = sent_results_[slot];
  const auto finding = health_->judge(slot, result.header, counters_->findings);
  if (!finding) return;
  constexpr size_t kOne = wire::kSmallExtensionBytes;
  wire::encode_extension(*finding, std::span(result.extensions).subspan<kOne, kOne>());
  result.small_extensions = 2;
}

// For a chunk whose result a rank has contributed, or that is a copy of one. The tasks of its groups do no
// work, so that results leave in the order in which chunks became complete.
size_t LaneSession::copy_kept_slice(const FoldTask& task, size_t output_budget, bool& complete) noexcept {
  const ChunkSlot& c = chunks_[task.slot];
  if (groups_ > 1 && task.group < groups_) {
    complete = true;
    return 0;
  }
  const size_t size = wire::size_of(c.reference.wire_dtype);
  const size_t total = c.reference.length / size;
  const size_t count = std::min(total - task_element_, std::max<size_t>(output_budget / size, 1));
  std::byte* const out = arena_.result(task.slot) + task_element_ * size;
  std::memcpy(out, arena_.contribution(c.kept_rank, task.slot) + task_element_ * size, count * size);
  if (plan_.payload_crc) task_crc_ = crc32c({out, count * size}, task_crc_);
  virtual_time_ += static_cast<double>(count * size) / plan_.weight;
  task_element_ += count;
  complete = task_element_ == total;
  return count * size;
}

void LaneSession::task_complete(const FoldTask& task) noexcept {
  ChunkSlot& c = chunks_[task.slot];
  if (groups_ == 1 || task.group == groups_) {
    put_result(task.slot);
  } else if (++c.groups_folded == groups_) {
    push_task(task.slot, groups_);
  }
}

bool LaneSession::detect_packet_loss() noexcept {
  bool lost = false;
  for (const auto& conn : connections_) {
    if (conn->endpoint_ != nullptr) lost |= conn->loss_detector_.has_new_losses(*conn->endpoint_);
  }
  return lost;
}

void LaneSession::put_result(uint32_t slot) noexcept {
  ChunkSlot& c = chunks_[slot];
  SentResult& result = sent_results_[slot];
  wire::FrameHeader& h = result.header;
  h = c.reference;
  result.owner = c.owner;
  h.type = wire::FrameType::kResult;
  h.flags = plan_.payload_crc ? wire::kFlagPayloadCrc : uint16_t{0};
  losses_to_report_ |= detect_packet_loss();
  if (std::exchange(losses_to_report_, false)) h.flags |= wire::kFlagLosses;
  h.payload_crc = plan_.payload_crc ? task_crc_ : 0;
  result.small_extensions = 1;
  const auto lag_us = static_cast<uint64_t>((c.last_arrival - c.first_arrival) / kMicrosecond);
  wire::encode_extension(
      wire::ResultInfo{.last_rank = c.last_rank,
                       .lag_us = static_cast<uint32_t>(std::min<uint64_t>(lag_us, UINT32_MAX))},
      std::span(result.extensions).first<wire::kSmallExtensionBytes>());
  if (health_ != nullptr && !c.kept && !wire::copies(h.kind)) add_finding(slot);
  h.ext_len8 = extension_units(result.small_extensions);
  if (c.accepts_sparse) encode_result(result);
  counters_->chunks.add(1);
  const uint32_t receivers = !wire::has_owner(h.kind) ? plan_.ranks
                             : wire::copies(h.kind)   ? plan_.ranks - 1
                                                      : 1;
  meter_.add(uint64_t{h.length} * receivers);
  if (c.kept && !wire::copies(h.kind)) counters_->kept_results.add(1);
  counters_->straggler_us_max.raise_to(lag_us);
  counters_->straggler.add(lag_us);
  operation_timer_.record_result(h.op_id, h.op, c.first_arrival, now(), *counters_);
  // Concurrent waits of several chunks are charged once. Chunks complete in the order of their sequences.
  if (const Nanos since = std::max(c.first_arrival, charged_until_); c.last_arrival > since) {
    waited_for_[c.last_rank].add(static_cast<uint64_t>(c.last_arrival - since));
    charged_until_ = c.last_arrival;
  }
  if (c.count != 0) {
    const double whole = static_cast<double>(c.count) * static_cast<double>(wire::size_of(h.wire_dtype));
    counters_->operations[static_cast<size_t>(h.wire_dtype)][static_cast<size_t>(h.op)].add(
        std::min(1.0, c.reference.length / whole));  // the count in OP_INFO is not checked
  }
  SLUICE_DASSERT(h.sequence == next_result_);
  next_result_ = h.sequence + 1;
  c.state = ChunkState::kFree;
  for (const auto& conn : connections_) {
    // A rank that is disconnected, or has not sent RESUME, gets the result when it resumes.
    if (receives_results(*conn)) (void)put(*conn, h, result);
  }
}

// Removes zero blocks from the result in its slot, if that pays. Its checksum was made while the fold's
// output was in the cache; that of a sparse payload is made again, over fewer bytes.
void LaneSession::encode_result(SentResult& result) noexcept {
  wire::FrameHeader& h = result.header;
  std::byte* const payload = arena_.result(h.slot);
  if (wire::sparse_length({payload, h.length}, h.wire_dtype) == 0) return;
  const uint32_t expanded = h.length;
  h.length = static_cast<uint32_t>(wire::encode_sparse({payload, expanded}, h.wire_dtype, payload));
  h.encoding = wire::Encoding::kSparse;
  const size_t at = h.extension_bytes();
  wire::encode_extension(wire::Expanded{.bytes = expanded},
                         std::span(result.extensions).subspan(at).first<wire::kSmallExtensionBytes>());
  h.ext_len8 += extension_units(1);
  if (plan_.payload_crc) h.payload_crc = crc32c({payload, h.length});
  counters_->sparse_bytes_saved.add(expanded - h.length);
}

// The send queue holds W results and two control frames. A rank contributes s + W only when it has result s,
// so at most W results wait for it. A full queue means that the rank contributes but reads nothing: it is
// closed.
bool LaneSession::put(RankConnection& conn, const wire::FrameHeader& header,
                      const SentResult& result) noexcept {
  const std::span<const std::byte> payload(arena_.result(header.slot), header.length);
  Status put;
  if (wire::receives(header.kind, result.owner, conn.rank_)) {
    const std::span extensions = std::span(result.extensions).first(header.extension_bytes());
    put = conn.endpoint_->put(header, extensions, payload, view_.version);
  } else {
    wire::FrameHeader empty = header;
    empty.length = empty.payload_crc = 0;
    empty.flags &= static_cast<uint16_t>(~wire::kFlagPayloadCrc);
    empty.encoding = wire::Encoding::kPlain;
    empty.ext_len8 = extension_units(result.small_extensions);
    const std::span extensions = std::span(result.extensions).first(empty.extension_bytes());
    put = conn.endpoint_->put(empty, extensions, {}, view_.version);
  }
  if (put == Errc::kWouldBlock) conn.endpoint_->close(Errc::kSlotNotGranted);
  if (!put.ok()) return false;
  ++conn.pending_puts_;
  ++conn.results_put_;
  return true;
}

}  // namespace sluice::reducer
