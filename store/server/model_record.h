// What the coordinator knows of a model. Keys: "models/NAME" has its specification, "state/NAME" its version
// and who has its shards, "stores/ID" the address of a live reducer. Version and holders are one value, so
// that a step commits only if no shard has changed hands since it was prepared. A model begins with its
// specification and ends with it: a state of another model, or of none, is left from one that was deleted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "store/coordinator/coordinator.h"
#include "store/model/model_spec.h"

namespace sluice::store {

using StoreId = uint64_t;  // of a state folder; never 0
inline constexpr StoreId kNoStore = 0;

struct ShardHolders {
  StoreId owner = kNoStore;
  StoreId copy = kNoStore;  // kNoStore: there is none now
  uint64_t generation = 1;  // raised by each change of owner or copy
  friend bool operator==(const ShardHolders&, const ShardHolders&) = default;
};

struct CoordinatedState {
  uint64_t model = 0;       // whose state it is, by the id in its record; 0: written by a release without it
  bool is_started = false;  // all shards have the first version
  uint64_t version = 0;     // the current one
  std::vector<ShardHolders> shards;
  Revision revision = 0;  // of the key; not part of the text
};

struct ModelRecord {
  uint64_t id = 0;  // random: a model that was deleted and created again is another one
  std::string job;  // of its creator: only this job may change the model
  ModelSpec spec;
  Revision revision = 0;
};

inline constexpr std::string_view kModelKeys = "models/";
inline constexpr std::string_view kStateKeys = "state/";
inline constexpr std::string_view kStoreKeys = "stores/";

[[nodiscard]] std::string model_key(const std::string& name);
[[nodiscard]] std::string state_key(const std::string& name);
[[nodiscard]] std::string store_key(StoreId id);

// The reason why a job may not change a model.
[[nodiscard]] std::string other_job(const std::string& model, const std::string& owner,
                                    const std::string& job);

[[nodiscard]] std::string record_text(const ModelRecord& record);
[[nodiscard]] std::string state_text(const CoordinatedState& state);
// Errors (kBadField) name the key.
[[nodiscard]] Result<ModelRecord> parse_record(const Entry& entry);
[[nodiscard]] Result<CoordinatedState> parse_state(const Entry& entry);

}  // namespace sluice::store
