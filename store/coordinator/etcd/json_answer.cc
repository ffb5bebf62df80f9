#include "store/coordinator/etcd/json_answer.h"

#include "config/json.h"
#include "config/printable_text.h"
#include "core/parse_number.h"
#include "core/text_encoding.h"

namespace sluice::store::etcd {

using nlohmann::json;

namespace {

std::optional<std::string> bytes_member(const json& object, const char* name) {
  const json* const text = member(object, name);
  if (text == nullptr) return std::string();  // etcd leaves out what is empty
  if (!text->is_string()) return std::nullopt;
  return from_base64(text->get_ref<const std::string&>());
}

}  // namespace

std::optional<json> parse_object(std::string_view text) {
  json value = config::parse_limited_json(text);
  return value.is_object() ? std::optional(std::move(value)) : std::nullopt;
}

const json* member(const json& value, const char* name) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(name);
  return found == value.end() ? nullptr : &*found;
}

std::optional<int64_t> integer(const json& object, const char* name) {
  const json* const value = member(object, name);
  if (value == nullptr) return 0;
  if (value->is_string()) return parse_number<int64_t>(value->get_ref<const std::string&>());
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  return value->is_number_integer() ? std::optional(value->get<int64_t>()) : std::nullopt;
}

bool is_true(const json& object, const char* name) {
  const json* const value = member(object, name);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

const json* list_member(const json& object, const char* name) {
  static const json kEmpty = json::array();
  const json* const value = member(object, name);
  if (value == nullptr) return &kEmpty;
  return value->is_array() ? value : nullptr;
}

std::optional<Revision> header_revision(const json& answer) {
  const json* const header = member(answer, "header");
  if (header == nullptr) return std::nullopt;
  const auto revision = integer(*header, "revision");
  return revision && *revision > 0 ? revision : std::nullopt;
}

std::optional<Entry> entry_of(const json& pair, std::string_view root) {
  auto key = bytes_member(pair, "key");
  auto value = bytes_member(pair, "value");
  const auto revision = integer(pair, "mod_revision");
  const auto lease = integer(pair, "lease");
  if (!key || !key->starts_with(root) || !value || value->size() > kMaxValueBytes) return std::nullopt;
  if (!revision || *revision <= 0 || !lease) return std::nullopt;
  key->erase(0, root.size());
  if (!check_key(*key)) return std::nullopt;
  return Entry{.key = std::move(*key), .value = std::move(*value), .revision = *revision, .lease = *lease};
}

std::optional<Refusal> refusal_of(const json& answer) {
  const json* const error = member(answer, "error");
  if (error == nullptr) return std::nullopt;
  const json& fields = error->is_object() ? *error : answer;
  Refusal refusal;
  for (const char* name : {"code", "grpc_code"})
    if (const auto code = integer(fields, name); code && *code != 0) refusal.code = *code;
  for (const char* name : {"message", "error"})
    if (const json* const text = member(fields, name);
        refusal.text.empty() && text != nullptr && text->is_string())
      refusal.text = config::printable(text->get_ref<const std::string&>());
  return refusal;
}

}  // namespace sluice::store::etcd
