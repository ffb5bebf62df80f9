// Reads JSON from a platform with limits on size and depth. Every error names the location in the document.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace sluice::config::discovery {

inline constexpr size_t kMaxJsonDepth = 64;

using LocatedTexts = std::vector<std::pair<std::string, std::string>>;  // text, location in the document

// Class JsonNode is a value of a JSON document together with its path, "CLUSTER_SPEC:/task/index". Each node
// keeps the whole document alive.
class JsonNode {
 public:
  // `origin` names the variable or file. Returns kInvalidArgument, "CLUSTER_SPEC:1:17: ...", when the text is
  // not JSON, too long or nested too deeply.
  [[nodiscard]] static Result<JsonNode> parse(std::string origin, std::string_view text);

  // Returns the member, or nothing when it is missing or null. Returns kInvalidArgument when this node is not
  // an object.
  [[nodiscard]] Result<std::optional<JsonNode>> member(const std::string& name) const;
  // Returns an error also when the member is missing or null.
  [[nodiscard]] Result<JsonNode> required_member(const std::string& name) const;
  [[nodiscard]] Result<std::string> text() const;
  // Accepts a non-negative integer and a string that contains one.
  [[nodiscard]] Result<uint32_t> number() const;
  // Returns the strings of an array with their locations.
  [[nodiscard]] Result<LocatedTexts> texts() const;
  // Returns the texts() of the member, or none when it is missing or null.
  [[nodiscard]] Result<LocatedTexts> member_texts(const std::string& name) const;
  // Returns the elements of an array. An empty object counts as an empty array: some platforms write an
  // unused pool that way.
  [[nodiscard]] Result<std::vector<JsonNode>> elements() const;
  // Returns the members of an object.
  [[nodiscard]] Result<std::vector<std::pair<std::string, JsonNode>>> members() const;

  // Returns the error "CLUSTER_SPEC:/task/index: MESSAGE".
  [[nodiscard]] tl::unexpected<Error> error(const std::string& message) const;
  [[nodiscard]] std::string location() const { return origin_ + ":" + pointer_; }

 private:
  JsonNode(std::shared_ptr<const nlohmann::json> document, const nlohmann::json* value, std::string origin,
           std::string pointer)
      : document_(std::move(document)),
        value_(value),
        origin_(std::move(origin)),
        pointer_(std::move(pointer)) {}
  [[nodiscard]] JsonNode child(const nlohmann::json& value, const std::string& name) const;
  [[nodiscard]] tl::unexpected<Error> type_error(const char* expected) const;

  std::shared_ptr<const nlohmann::json> document_;
  const nlohmann::json* value_;
  std::string origin_;
  std::string pointer_;  // RFC 6901
};

}  // namespace sluice::config::discovery
