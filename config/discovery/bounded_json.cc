#include "config/discovery/bounded_json.h"

#include <algorithm>
#include <charconv>

#include "config/discovery/surroundings.h"
#include "config/plain_text.h"

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

// Where the nesting first is too deep. Looked at before the parser builds anything.
std::optional<size_t> too_deep_at(std::string_view text) {
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
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
  for (const char c : plain(name)) {
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

Result<JsonPlace> JsonPlace::parse(std::string origin, std::string_view text) {
  const auto bad = [&](size_t at, const std::string& what) {
    return fail(Errc::kInvalidArgument, origin + ":" + line_and_column(text, at) + what);
  };
  if (text.size() > kMaxFile) return bad(0, "longer than " + std::to_string(kMaxFile) + " bytes");
  if (const auto at = too_deep_at(text))
    return bad(*at, "nested deeper than " + std::to_string(kMaxJsonDepth));
  try {
    auto document = std::make_shared<const json>(json::parse(text));
    const json* const value = document.get();
    return JsonPlace(std::move(document), value, std::move(origin), "");
  } catch (const json::parse_error& e) {
    return bad(e.byte == 0 ? 0 : e.byte - 1, e.byte > text.size() ? "the JSON is cut off here" : "no JSON");
  } catch (const json::exception& e) {  // a number that nothing holds
    return bad(0, plain(e.what()));
  }
}

JsonPlace JsonPlace::below(const json& value, const std::string& name) const {
  return {document_, &value, origin_, pointer_ + "/" + escaped(name)};
}

tl::unexpected<Error> JsonPlace::wrong(const std::string& what) const {
  return fail(Errc::kInvalidArgument, place() + ": " + what);
}

Result<std::optional<JsonPlace>> JsonPlace::member(const std::string& name) const {
  if (!value_->is_object()) return wrong("an object is wanted, not " + std::string(value_->type_name()));
  const auto found = value_->find(name);
  if (found == value_->end() || found->is_null()) return std::optional<JsonPlace>();
  return below(*found, name);
}

Result<std::string> JsonPlace::text() const {
  if (!value_->is_string()) return wrong("a string is wanted, not " + std::string(value_->type_name()));
  return value_->get<std::string>();
}

Result<uint32_t> JsonPlace::number() const {
  if (value_->is_number_unsigned()) {
    if (const auto n = value_->get<uint64_t>(); n <= UINT32_MAX) return static_cast<uint32_t>(n);
  } else if (value_->is_string()) {
    const auto& text = value_->get_ref<const std::string&>();
    uint32_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return n;
  }
  return wrong("a whole number from 0 on is wanted");
}

Result<std::vector<JsonPlace>> JsonPlace::elements() const {
  std::vector<JsonPlace> out;
  if (value_->is_object() && value_->empty()) return out;
  if (!value_->is_array()) return wrong("an array is wanted, not " + std::string(value_->type_name()));
  size_t i = 0;
  for (const json& element : *value_) out.push_back(below(element, std::to_string(i++)));
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> JsonPlace::texts() const {
  auto all = elements();
  if (!all) return tl::unexpected(all.error());
  std::vector<std::pair<std::string, std::string>> out;
  for (const JsonPlace& element : *all) {
    auto text = element.text();
    if (!text) return tl::unexpected(text.error());
    out.emplace_back(std::move(*text), element.place());
  }
  return out;
}

Result<std::vector<std::pair<std::string, JsonPlace>>> JsonPlace::members() const {
  if (!value_->is_object()) return wrong("an object is wanted, not " + std::string(value_->type_name()));
  std::vector<std::pair<std::string, JsonPlace>> out;
  for (const auto& [name, value] : value_->items()) out.emplace_back(name, below(value, name));
  return out;
}

}  // namespace sluice::config::discovery
