#include "config/discovery/json_node.h"

#include <algorithm>

#include "config/discovery/environment.h"
#include "config/printable_text.h"
#include "core/parse_number.h"

namespace sluice::config::discovery {
namespace {

using nlohmann::json;

std::string line_and_column(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const size_t line = 1 + static_cast<size_t>(std::ranges::count(before, '\n'));
  const size_t newline = before.rfind('\n');
  const size_t column = newline == before.npos ? before.size() : before.size() - newline - 1;
  return std::to_string(line) + ":" + std::to_string(column + 1) + ": ";
}

// Returns the first offset where the nesting is too deep. Runs before the parser, which recurses.
std::optional<size_t> too_deep_at(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return i;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return std::nullopt;
}

std::string escaped(const std::string& name) {  // RFC 6901 section 3
  std::string out;
  for (const char c : printable(name)) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Result<JsonNode> JsonNode::parse(std::string origin, std::string_view text) {
  const auto bad = [&](size_t at, const std::string& message) {
    return invalid(origin + ":" + line_and_column(text, at) + message);
  };
  if (text.size() > kMaxFile) return bad(0, "JSON is longer than " + std::to_string(kMaxFile) + " bytes");
  if (const auto at = too_deep_at(text))
    return bad(*at, "JSON is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  try {
    auto document = std::make_shared<const json>(json::parse(text));
    const json* const value = document.get();
    return JsonNode(std::move(document), value, std::move(origin), "");
  } catch (const json::parse_error& e) {
    return bad(e.byte == 0 ? 0 : e.byte - 1,
               e.byte > text.size() ? "unexpected end of JSON" : "invalid JSON");
  } catch (const json::exception& e) {  // such as a number out of range
    return bad(0, printable(e.what()));
  }
}

JsonNode JsonNode::child(const json& value, const std::string& name) const {
  return {document_, &value, origin_, pointer_ + "/" + escaped(name)};
}

tl::unexpected<Error> JsonNode::error(const std::string& message) const {
  return invalid(location() + ": " + message);
}

tl::unexpected<Error> JsonNode::type_error(const char* expected) const {
  return error(std::string("expected ") + expected + ", found " + value_->type_name());
}

Result<std::optional<JsonNode>> JsonNode::member(const std::string& name) const {
  if (!value_->is_object()) return type_error("object");
  const auto found = value_->find(name);
  if (found == value_->end() || found->is_null()) return std::optional<JsonNode>();
  return child(*found, name);
}

Result<JsonNode> JsonNode::required_member(const std::string& name) const {
  SLUICE_ASSIGN_OR_RETURN(found, member(name));
  if (!found) return error("missing member \"" + name + "\"");
  return std::move(*found);
}

Result<std::string> JsonNode::text() const {
  if (!value_->is_string()) return type_error("string");
  return value_->get<std::string>();
}

Result<uint32_t> JsonNode::number() const {
  if (value_->is_number_unsigned()) {
    if (const auto n = value_->get<uint64_t>(); n <= UINT32_MAX) return static_cast<uint32_t>(n);
  } else if (value_->is_string()) {
    if (const auto n = parse_number<uint32_t>(value_->get_ref<const std::string&>())) return *n;
  }
  return error("expected a non-negative integer");
}

Result<std::vector<JsonNode>> JsonNode::elements() const {
  std::vector<JsonNode> out;
  if (value_->is_object() && value_->empty()) return out;
  if (!value_->is_array()) return type_error("array");
  size_t i = 0;
  for (const json& element : *value_) out.push_back(child(element, std::to_string(i++)));
  return out;
}

Result<LocatedTexts> JsonNode::texts() const {
  SLUICE_ASSIGN_OR_RETURN(all, elements());
  LocatedTexts out;
  for (const JsonNode& element : all) {
    SLUICE_ASSIGN_OR_RETURN(text, element.text());
    out.emplace_back(std::move(text), element.location());
  }
  return out;
}

Result<LocatedTexts> JsonNode::member_texts(const std::string& name) const {
  SLUICE_ASSIGN_OR_RETURN(found, member(name));
  return found ? found->texts() : LocatedTexts();
}

Result<std::vector<std::pair<std::string, JsonNode>>> JsonNode::members() const {
  if (!value_->is_object()) return type_error("object");
  std::vector<std::pair<std::string, JsonNode>> out;
  for (const auto& [name, value] : value_->items()) out.emplace_back(name, child(value, name));
  return out;
}

}  // namespace sluice::config::discovery
