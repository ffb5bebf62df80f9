#include "reducer/slots/slot_arena.h"

#include <utility>

#include "core/units.h"
#include "reducer/kernels/fold.h"

namespace sluice::reducer {
namespace {

// Period at which cache sets and memory banks repeat.
constexpr size_t kPage = 4 * kKiB;

}  // namespace

uint32_t group_count(uint32_t ranks) noexcept {
  return static_cast<uint32_t>(div_ceil(ranks, kernels::kGroup));
}

SlotArena::Layout SlotArena::layout(const SessionPlan& plan) noexcept {
  Layout l{};
  l.slots = plan.slots;
  l.groups = group_count(plan.ranks);
  // One extra cache line keeps the same offset of neighboring slots out of one cache set. The extra lines of
  // rank_stride do the same for the slots of eight ranks.
  l.stride = round_up(plan.slot_bytes, kCacheLine) + wire::kHeaderBytes + kCacheLine;
  l.rank_stride = round_up(l.slots * l.stride, kPage) + 2 * kCacheLine;
  l.partial_stride = 2 * round_up(plan.slot_bytes, kCacheLine) + kCacheLine;
  l.results_at = size_t{plan.ranks} * l.rank_stride;
  l.partials_at = l.results_at + l.slots * l.stride;
  l.total = l.partials_at + (l.groups > 1 ? l.slots * l.groups * l.partial_stride : 0);
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
  arena.layout_ = l;
  return arena;
}

}  // namespace sluice::reducer
