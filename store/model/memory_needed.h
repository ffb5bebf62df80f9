// The memory that one reducer reserves for a model, which create() compares with the memory limit.
#pragma once

#include <cstdint>
#include <optional>

#include "core/result.h"
#include "store/model/model_layout.h"
#include "store/model/model_spec.h"

namespace sluice::store {

// Workers for which memory is reserved beside a sync model's quorum.
inline constexpr uint32_t kExpectedWorkers = 8;

struct MemoryNeeded {
  uint64_t shard_bytes = 0;    // one array of one shard
  uint32_t arrays = 0;         // of a version: parameters and state of the rule
  uint32_t slots = 0;          // versions that files hold: the kept ones and the next
  uint32_t places = 0;         // shards on one reducer: its own, and with several reducers a copy of another
  uint32_t staged_deltas = 0;  // pushes that wait for a step, each of shard_bytes
  [[nodiscard]] uint64_t files() const noexcept { return uint64_t{slots} * places; }
  [[nodiscard]] uint64_t version_bytes() const noexcept { return shard_bytes * arrays * slots * places; }
  [[nodiscard]] uint64_t staged_bytes() const noexcept { return shard_bytes * staged_deltas; }
  [[nodiscard]] uint64_t total() const noexcept { return version_bytes() + staged_bytes(); }
};

// `workers` bounds the pushes that wait at a time; a sync model stages at least its quorum.
[[nodiscard]] MemoryNeeded memory_needed(const ModelSpec& spec, const ModelLayout& layout, uint32_t workers);

// The error if `limit`, of which `reserved` bytes are in use, is too small; kMemoryLimit, with all numbers.
[[nodiscard]] std::optional<Error> check_memory(const ModelSpec& spec, const MemoryNeeded& needed,
                                                uint64_t limit, uint64_t reserved);

}  // namespace sluice::store
