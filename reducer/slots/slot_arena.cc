#include "reducer/slots/slot_arena.h"

#include <utility>

#include "core/units.h"
#include "reducer/kernels/fold.h"

namespace sluice::reducer {

struct SlotArena::Layout {
  size_t stride, partial_stride, results_at, partials_at, total;
};

uint32_t group_count(uint32_t ranks) noexcept {
  return static_cast<uint32_t>(div_ceil(ranks, kernels::kGroup));
}

SlotArena::Layout SlotArena::layout(const SessionPlan& plan) noexcept {
  Layout l{};
  // Header space, payload, and one line more, so that the same offset of eight ranks' slots does not fall
  // into one cache set.
  l.stride = round_up(plan.slot_bytes, kCacheLine) + wire::kHeaderBytes + kCacheLine;
  l.partial_stride = 2 * round_up(plan.slot_bytes, kCacheLine) + kCacheLine;
  l.results_at = size_t{plan.slots} * plan.ranks * l.stride;
  l.partials_at = l.results_at + size_t{plan.slots} * l.stride;
  const size_t groups = group_count(plan.ranks);
  l.total = l.partials_at + (groups > 1 ? size_t{plan.slots} * groups * l.partial_stride : 0);
  return l;
}

uint64_t SlotArena::bytes_for(const SessionPlan& plan) noexcept {
  return layout(plan).total;
}

Result<SlotArena> SlotArena::map(const SessionPlan& plan) {
  const Layout l = layout(plan);
  auto memory = Arena::map(l.total);
  if (!memory) return tl::unexpected(std::move(memory.error()));
  SlotArena arena;
  arena.memory_ = std::move(*memory);
  arena.ranks_ = plan.ranks;
  arena.groups_ = group_count(plan.ranks);
  arena.stride_ = l.stride;
  arena.partial_stride_ = l.partial_stride;
  arena.results_at_ = l.results_at;
  arena.partials_at_ = l.partials_at;
  return arena;
}

}  // namespace sluice::reducer
