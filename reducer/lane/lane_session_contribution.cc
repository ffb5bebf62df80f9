// The receive side of LaneSession: which contributions are admitted and when they are folded.
#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <optional>
#include <string_view>

#include "core/assert.h"
#include "reducer/lane/lane_session.h"
#include "wire/payload/block_codec.h"
#include "wire/payload/sparse.h"

namespace sluice::reducer {

bool LaneSession::may_contribute(const RankConnection& conn, uint64_t sequence) const noexcept {
  return conn.state_ == RankConnection::State::kCommitted && conn.part_ != RankConnection::Part::kNothing &&
         sequence < conn.results_put_ + plan_.slots;
}

std::byte* LaneSession::contribution_slot(const RankConnection& conn, uint64_t sequence) const noexcept {
  return arena_.contribution(conn.rank_, static_cast<uint32_t>(sequence % plan_.slots));
}

namespace {

// Checks the payload of a contribution of a kind whose chunks have an owner: protocol.md section 9, "Kinds".
// `payload` is its length without encoding. Sets `chunk_bytes`.
Status check_owned(const wire::FrameHeader& h, size_t payload, std::span<const std::byte> extensions,
                   Rank rank, uint32_t ranks, size_t& chunk_bytes) noexcept {
  const auto owner = wire::find_owner(extensions);
  if (!owner) return Errc::kBadExtension;
  if (owner->owner >= ranks) return Errc::kBadField;
  const bool kept = (h.flags & wire::kFlagKept) != 0;
  if (kept && !wire::copies(h.kind) && owner->owner != rank) return Errc::kBadField;
  chunk_bytes = owner->chunk_bytes;
  const bool has_payload = kept || wire::contributes(h.kind, owner->owner, rank);
  if (chunk_bytes == 0 || chunk_bytes % wire::size_of(h.wire_dtype) != 0) return Errc::kBadLength;
  return payload == (has_payload ? chunk_bytes : 0) ? Errc::kOk : Errc::kBadLength;
}

}  // namespace

Status LaneSession::admit(RankConnection& conn, const wire::FrameHeader& h,
                          std::span<const std::byte> extensions, std::byte*& slot_memory) noexcept {
  if (conn.state_ != RankConnection::State::kCommitted || conn.part_ == RankConnection::Part::kNothing)
    return Errc::kUnexpectedMessage;
  if (h.session != plan_.handle) return Errc::kBadSession;
  if (h.view_version != conn.view_.version || h.view_hash != conn.view_.hash) return Errc::kBadView;
  // No rank can hold a result of the first view before that view has produced it.
  if ((h.flags & wire::kFlagKept) != 0 && (!plan_.fault_tolerant || h.view_version == 0))
    return Errc::kBadField;
  if (h.sequence != conn.next_contribution_) return Errc::kBadSequence;
  const auto slot = static_cast<uint32_t>(h.sequence % plan_.slots);
  if (h.slot != slot) return Errc::kBadSlot;
  if (!may_contribute(conn, h.sequence)) return Errc::kSlotNotGranted;
  size_t payload = h.length;
  if (h.encoding == wire::Encoding::kSparse) {
    const auto expanded = wire::find_expanded(extensions);
    if (!expanded) return Errc::kBadExtension;
    payload = expanded->bytes;
    if (h.length >= payload || payload % wire::size_of(h.wire_dtype) != 0) return Errc::kBadLength;
  }
  size_t bytes = payload;
  if (wire::has_owner(h.kind)) {
    const Status s = check_owned(h, payload, extensions, conn.rank_, plan_.ranks, bytes);
    if (!s.ok()) return s;
  }
  const size_t widened = bytes / wire::size_of(h.wire_dtype) * wire::accumulated_size_of(h.wire_dtype);
  // The partial sums of the chunk must fit: protocol.md section 8.
  if (bytes > plan_.slot_bytes || widened > 2 * size_t{plan_.slot_bytes}) return Errc::kBadLength;
  slot_memory = contribution_slot(conn, h.sequence);
  return Errc::kOk;
}

Status LaneSession::decode(wire::FrameHeader& h, std::span<const std::byte> extensions,
                           std::byte* payload) noexcept {
  if (h.encoding == wire::Encoding::kSparse) {
    const uint32_t expanded = wire::find_expanded(extensions)->bytes;  // admit() has found it
    if (!wire::expand_sparse(payload, h.length, expanded, h.wire_dtype)) return Errc::kBadField;
    counters_->sparse_bytes_saved.add(expanded - h.length);
    h.length = expanded;
    h.encoding = wire::Encoding::kPlain;
  }
  return wire::are_valid_blocks(h.wire_dtype, {payload, h.length}) ? Errc::kOk : Errc::kBadField;
}

void LaneSession::on_contribution(RankConnection& conn, const wire::FrameHeader& h,
                                  std::span<const std::byte> extensions) noexcept {
  conn.next_contribution_ = h.sequence + 1;
  conn.last_length_ = wire::copies(h.kind) ? 0 : h.length;
  conn.last_extension_bytes_ = static_cast<uint32_t>(h.extension_bytes());
  if (ended()) return;
  if ((h.flags & wire::kFlagLosses) != 0) losses_to_report_ = true;
  if (conn.view_.version != view_.version) {
    counters_->contributions_dropped.add(1);
    return;
  }
  if (h.sequence >= leaver_limit_) {
    for (const auto& other : connections_) {
      if (other->part_ == RankConnection::Part::kNothing && other->view_.version == view_.version &&
          other->next_contribution_ <= h.sequence) {
        fail(Errc::kRankLeft, other->rank_,
             "rank %" PRIu32 " left the session; rank %" PRIu32 " continued with operation %" PRIu32,
             other->rank_, conn.rank_, h.op_id);
        return;
      }
    }
  }
  const auto info = wire::find_op_info(extensions);
  const uint64_t count = info ? info->count : 0;
  // OP_INFO alone, in most sessions.
  const auto caller =
      extensions.size() > wire::kSmallExtensionBytes ? wire::find_caller(extensions) : std::nullopt;
  const uint32_t slot = h.slot;
  ChunkSlot& c = chunks_[slot];
  // The header that all ranks agree on.
  const wire::FrameHeader* agreed = &h;
  wire::FrameHeader with_chunk_length;
  uint32_t owner = wire::kNoRank;
  if (wire::has_owner(h.kind)) {
    const wire::ChunkOwner chunk = *wire::find_owner(extensions);  // admit() has found it
    with_chunk_length = h;
    with_chunk_length.length = chunk.chunk_bytes;
    agreed = &with_chunk_length;
    owner = chunk.owner;
  }
  if (c.state == ChunkState::kFree) {
    c.begin(*agreed, owner, count, caller, conn.rank_, now());
    if (is_idle_) leave_idle();
  } else if (const char* field = first_difference(c, *agreed, owner, count); field != nullptr) {
    fail_mismatch(conn, h, count, caller, c, field);
    return;
  }
  SLUICE_DASSERT(c.state == ChunkState::kFilling && h.sequence >= next_result_);
  c.accepts_sparse &= (h.flags & wire::kFlagAcceptsSparse) != 0;
  const bool has_result = (h.flags & wire::kFlagKept) != 0 || (wire::copies(h.kind) && owner == conn.rank_);
  if (has_result && !c.kept) {
    c.kept = true;
    c.kept_rank = conn.rank_;
  }
  c.last_rank = conn.rank_;
  c.last_arrival = now();
  ++c.arrived;
  const auto group = static_cast<uint32_t>(conn.rank_ / kernels::kGroup);
  if (c.arrived == plan_.ranks) c.state = ChunkState::kFolding;
  if (++c.group_arrived[group] == ranks_of_group(group)) push_task(slot, group);
  if (c.state == ChunkState::kFilling) (void)complete_without_leavers(slot);
}

uint32_t LaneSession::ranks_of_group(uint32_t group) const noexcept {
  return std::min<uint32_t>(kernels::kGroup, plan_.ranks - group * static_cast<uint32_t>(kernels::kGroup));
}

Status LaneSession::commit(RankConnection& conn, std::span<const std::byte> body) noexcept {
  wire::Commit commit;
  if (const Status status = wire::decode_body(body, commit); !status.ok()) return status;
  if (is_other_incarnation(commit.incarnation)) return Errc::kBadField;
  incarnation_ = commit.incarnation;
  conn.state_ = RankConnection::State::kCommitted;
  conn.committed_ = true;
  return Errc::kOk;
}

bool LaneSession::is_other_incarnation(uint64_t incarnation) const noexcept {
  return incarnation == 0 || (incarnation_ != 0 && incarnation_ != incarnation);
}

void LaneSession::fail_mismatch(const RankConnection& conn, const wire::FrameHeader& h, uint64_t count,
                                const std::optional<wire::Caller>& caller, const ChunkSlot& c,
                                const char* field) noexcept {
  if (caller && c.caller) return fail_mismatch_of_callers(conn, count, *caller, c);
  const auto text = [](auto value) { return wire::to_string(value).data(); };  // NUL-terminated literals
  const wire::FrameHeader& r = c.reference;
  if (std::string_view(field) == "operation") {  // what differs is not in the frames
    fail(Errc::kMismatch, conn.rank_,
         "ranks disagree on operation: rank %" PRIu32 " and rank %" PRIu32 " call different ones", conn.rank_,
         c.first_rank);
    return;
  }
  fail(Errc::kMismatch, conn.rank_,
       "ranks disagree on %s: rank %" PRIu32 " operation %" PRIu32 " is %s of count %" PRIu64
       " dtype %s op %s chunk %" PRIu64 ", rank %" PRIu32 " operation %" PRIu32 " is %s of count %" PRIu64
       " dtype %s op %s chunk %" PRIu64,
       field, conn.rank_, h.op_id, wire::to_string(h.kind), count, text(h.wire_dtype), text(h.op), h.chunk,
       c.first_rank, r.op_id, wire::to_string(r.kind), c.count, text(r.wire_dtype), text(r.op), r.chunk);
}

// On a rail, whose pieces do not look like the operations. A root is marked: it is a rank of the callers.
void LaneSession::fail_mismatch_of_callers(const RankConnection& conn, uint64_t count,
                                           const wire::Caller& caller, const ChunkSlot& c) noexcept {
  const char* field = first_difference(*c.caller, caller);
  if (field == nullptr) field = count != c.count ? "count" : "counts";  // of the parts
  std::array<std::array<char, 160>, 2> texts{};
  const auto describe = [](std::array<char, 160>& out, Rank rank, uint64_t elements, const wire::Caller& o) {
    const int length = std::snprintf(
        out.data(), out.size(),
        "rank %" PRIu32 " operation %" PRIu32 " is %s of count %" PRIu64 " dtype %s op %s", rank, o.op_id,
        wire::to_string(o.kind), elements, wire::to_string(o.dtype).data(), wire::to_string(o.op).data());
    if (wire::has_owner(o.kind) && !wire::has_parts(o.kind))
      std::snprintf(&out[length], out.size() - length, " root #%u", unsigned{o.root});
  };
  describe(texts[0], conn.rank_, count, caller);
  describe(texts[1], c.first_rank, c.count, *c.caller);
  fail(Errc::kMismatch, conn.rank_, "%sranks disagree on %s: %s, %s", wire::kWholeText, field,
       texts[0].data(), texts[1].data());
}

void LaneSession::fail(Errc code, Rank rank, const char* format, ...) noexcept {
  if (ended()) return;
  life_ = Life::kFailed;
  note_events();
  failure_.kind = LaneEvent::Kind::kFailed;
  failure_.session = this;
  failure_.rank = rank;
  failure_.code = code;
  va_list args;
  va_start(args, format);
  std::vsnprintf(failure_.text.data(), failure_.text.size(), format, args);
  va_end(args);
}

}  // namespace sluice::reducer
