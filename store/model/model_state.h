// Struct ModelState is a reducer's description of a model, which it sends as JSON (protocol.md section 16):
//
//   {"spec": {...}, "model": 17, "started": true, "version": 7,
//    "shards": [{"store": 99, "address": "10.0.0.2:7470", "generation": 1}, ...]}
//
// The answer to kCreate has "created" too. Other fields are ignored: they are of a newer reducer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "store/model/model_spec.h"

namespace sluice::store {

struct ShardOwner {
  uint64_t store = 0;  // id of the owner's state folder
  config::Endpoint address;
  uint64_t generation = 0;  // of the ownership
  friend bool operator==(const ShardOwner&, const ShardOwner&) = default;
};

struct ModelState {
  ModelSpec spec;
  uint64_t model = 0;
  std::vector<ShardOwner> shards;  // 1 to config::kMaxEndpoints
  bool started = false;
  uint64_t version = 0;
  bool created = false;
};

// Checks all that a peer sent. kBadField, with the field.
[[nodiscard]] Result<ModelState> parse_model_state(std::string_view text);
// The same for the answer to kList: ["name", ...].
[[nodiscard]] Result<std::vector<std::string>> parse_model_names(std::string_view text);

}  // namespace sluice::store
