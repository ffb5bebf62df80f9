// Class SlotArena is the memory of one session on one lane, in one mapping.
//
// It holds a contribution slot per rank and sequence mod W, a result slot per sequence mod W, and partial
// sums if the session has more than one group of ranks. docs/design/buffers.md defines which thread may
// access which part at which time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/result.h"
#include "reducer/slots/session_plan.h"
#include "wire/messages.h"

namespace sluice::reducer {

// The number of groups of consecutive ranks; the ranks of one group are summed in one pass.
[[nodiscard]] uint32_t group_count(uint32_t ranks) noexcept;

class SlotArena {
 public:
  // Bytes that map() reserves for this plan. The memory limit counts these.
  [[nodiscard]] static uint64_t bytes_for(const SessionPlan& plan) noexcept;
  [[nodiscard]] static Result<SlotArena> map(const SessionPlan& plan);

  // Call before the first access, if devices will register all of it (Arena::prefer_large_pages).
  void prefer_large_pages() const noexcept { memory_.prefer_large_pages(); }

  // slot_bytes of payload, 64-byte aligned. The 64 bytes before it hold the header for transports that write
  // header and payload at once.
  [[nodiscard]] std::byte* contribution(uint32_t rank, uint32_t slot) const noexcept {
    return memory_.data() + rank * layout_.rank_stride + size_t{slot} * layout_.stride + wire::kHeaderBytes;
  }
  // All contribution slots of a rank: the memory that its device may write to.
  [[nodiscard]] std::span<std::byte> contributions(uint32_t rank) const noexcept {
    return {memory_.data() + rank * layout_.rank_stride, layout_.slots * layout_.stride};
  }
  // All result slots.
  [[nodiscard]] std::span<std::byte> results() const noexcept {
    return {memory_.data() + layout_.results_at, layout_.slots * layout_.stride};
  }
  [[nodiscard]] std::byte* result(uint32_t slot) const noexcept {
    return memory_.data() + layout_.results_at + size_t{slot} * layout_.stride + wire::kHeaderBytes;
  }
  // 2 x slot_bytes, for a chunk in its accumulation type. Exists only if group_count() > 1.
  [[nodiscard]] std::byte* partial(uint32_t slot, uint32_t group) const noexcept {
    return memory_.data() + layout_.partials_at +
           (size_t{slot} * layout_.groups + group) * layout_.partial_stride;
  }

 private:
  struct Layout {
    size_t slots, groups, stride, rank_stride, partial_stride, results_at, partials_at, total;
  };
  [[nodiscard]] static Layout layout(const SessionPlan& plan) noexcept;

  Arena memory_;
  Layout layout_{};
};

}  // namespace sluice::reducer
