// The memory of one session on one lane: a contribution slot per rank and sequence mod W, partial sums where
// there is more than one group of eight ranks, a result per slot. One mapping, laid out once; who may touch
// what when is in docs/buffer-ownership.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/result.h"
#include "reducer/slots/session_plan.h"
#include "wire/messages.h"

namespace sluice::reducer {

// Groups of consecutive ranks that are summed in one pass.
[[nodiscard]] uint32_t group_count(uint32_t ranks) noexcept;

class SlotArena {
 public:
  // Bytes that map() takes for this plan: what the memory limit counts.
  [[nodiscard]] static uint64_t bytes_for(const SessionPlan& plan) noexcept;
  [[nodiscard]] static Result<SlotArena> map(const SessionPlan& plan);

  // Before it is touched, where devices are to know all of it (Arena::prefer_large_pages).
  void prefer_large_pages() const noexcept { memory_.prefer_large_pages(); }

  // slot_bytes of payload, 64-byte aligned, with 64 bytes in front for a header (used by transports that
  // write both at once).
  [[nodiscard]] std::byte* contribution(uint32_t rank, uint32_t slot) const noexcept {
    return memory_.data() + rank * rank_stride_ + size_t{slot} * stride_ + wire::kHeaderBytes;
  }
  // All contribution slots of a rank: what its device may write to.
  [[nodiscard]] std::span<std::byte> contributions(uint32_t rank) const noexcept {
    return {memory_.data() + rank * rank_stride_, size_t{slots_} * stride_};
  }
  // All result slots.
  [[nodiscard]] std::span<std::byte> results() const noexcept {
    return {memory_.data() + results_at_, size_t{slots_} * stride_};
  }
  [[nodiscard]] std::byte* result(uint32_t slot) const noexcept {
    return memory_.data() + results_at_ + size_t{slot} * stride_ + wire::kHeaderBytes;
  }
  // 2 x slot_bytes: a chunk in its accumulation type. Only where group_count() > 1.
  [[nodiscard]] std::byte* partial(uint32_t slot, uint32_t group) const noexcept {
    return memory_.data() + partials_at_ + (size_t{slot} * groups_ + group) * partial_stride_;
  }

 private:
  struct Layout;
  [[nodiscard]] static Layout layout(const SessionPlan& plan) noexcept;

  Arena memory_;
  size_t slots_ = 0;
  size_t groups_ = 0;
  size_t stride_ = 0;
  size_t rank_stride_ = 0;
  size_t partial_stride_ = 0;
  size_t results_at_ = 0;
  size_t partials_at_ = 0;
};

}  // namespace sluice::reducer
