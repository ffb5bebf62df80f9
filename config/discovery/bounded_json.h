// JSON that somebody else wrote, taken in with bounds, and read so that each mistake names its place.
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

// A value and how one got there: "CLUSTER_SPEC:/task/index". Holds the whole document.
class JsonPlace {
 public:
  // `origin` is the variable or file. kInvalidArgument: "CLUSTER_SPEC:1:17: ..." where it is no JSON, too
  // long, or nested too deep.
  [[nodiscard]] static Result<JsonPlace> parse(std::string origin, std::string_view text);

  // The member; nothing when there is none, or null. kInvalidArgument when this is no object.
  [[nodiscard]] Result<std::optional<JsonPlace>> member(const std::string& name) const;
  [[nodiscard]] Result<std::string> text() const;
  // A whole number, or a string that is one.
  [[nodiscard]] Result<uint32_t> number() const;
  // The strings of an array, with their places. An empty object or null counts as an empty array: so some
  // platforms write a pool that is not used.
  [[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> texts() const;
  [[nodiscard]] Result<std::vector<JsonPlace>> elements() const;
  // The members of an object.
  [[nodiscard]] Result<std::vector<std::pair<std::string, JsonPlace>>> members() const;

  // "CLUSTER_SPEC:/task/index: what"
  [[nodiscard]] tl::unexpected<Error> wrong(const std::string& what) const;
  [[nodiscard]] std::string place() const { return origin_ + ":" + pointer_; }

 private:
  JsonPlace(std::shared_ptr<const nlohmann::json> document, const nlohmann::json* value, std::string origin,
            std::string pointer)
      : document_(std::move(document)),
        value_(value),
        origin_(std::move(origin)),
        pointer_(std::move(pointer)) {}
  [[nodiscard]] JsonPlace below(const nlohmann::json& value, const std::string& name) const;

  std::shared_ptr<const nlohmann::json> document_;
  const nlohmann::json* value_;
  std::string origin_;
  std::string pointer_;  // RFC 6901
};

}  // namespace sluice::config::discovery
