#include "store/model/memory_needed.h"

#include <algorithm>
#include <string>

namespace sluice::store {

MemoryNeeded memory_needed(const ModelSpec& spec, const ModelLayout& layout, uint32_t workers) {
  return {.shard_bytes = layout.shard_elements() * sizeof(float),
          .arrays = static_cast<uint32_t>(array_count(spec.rule.kind)),
          .slots = spec.versions + 1,
          .places = layout.shards() > 1 ? 2U : 1U,
          .staged_deltas = std::max(workers, spec.mode.quorum)};
}

std::optional<Error> check_memory(const ModelSpec& spec, const MemoryNeeded& needed, uint64_t limit,
                                  uint64_t reserved) {
  if (needed.total() <= limit - std::min(reserved, limit)) return std::nullopt;
  const auto text = [](uint64_t n) { return std::to_string(n); };
  return Error{Errc::kMemoryLimit, "model \"" + spec.name + "\" needs " + text(needed.total()) +
                                       " bytes on each reducer (" + text(needed.slots) + " versions x " +
                                       text(needed.arrays) + " arrays x " + text(needed.shard_bytes) +
                                       " bytes x " + text(needed.places) + " shards, and " +
                                       text(needed.staged_deltas) + " staged deltas of " +
                                       text(needed.shard_bytes) + " bytes); the memory limit is " +
                                       text(limit) + " bytes, " + text(reserved) + " of them reserved"};
}

}  // namespace sluice::store
