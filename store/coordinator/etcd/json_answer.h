// Reads the JSON of etcd's answers. The bytes are a peer's: every function checks types, sizes and ranges,
// and returns nothing for a text that etcd does not send.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "store/coordinator/coordinator.h"

namespace sluice::store::etcd {

// An object, at most 16 levels deep.
[[nodiscard]] std::optional<nlohmann::json> parse_object(std::string_view text);
// The member, or null if it is missing or `value` is no object.
[[nodiscard]] const nlohmann::json* member(const nlohmann::json& value, const char* name);
// A number of 64 bits, which etcd writes as a text and leaves out if it is 0.
[[nodiscard]] std::optional<int64_t> integer(const nlohmann::json& object, const char* name);
[[nodiscard]] bool is_true(const nlohmann::json& object, const char* name);
// The list, which etcd leaves out if it is empty. Null: not a list.
[[nodiscard]] const nlohmann::json* list_member(const nlohmann::json& object, const char* name);
// The store's revision, above 0.
[[nodiscard]] std::optional<Revision> header_revision(const nlohmann::json& answer);
// A key-value pair without its `root`.
[[nodiscard]] std::optional<Entry> entry_of(const nlohmann::json& pair, std::string_view root);

// What etcd refuses: {"error": "etcdserver: no leader", "code": 14}, or within a stream {"error": {...}}.
struct Refusal {
  int64_t code = 0;  // of gRPC
  std::string text;
};
[[nodiscard]] std::optional<Refusal> refusal_of(const nlohmann::json& answer);

}  // namespace sluice::store::etcd
