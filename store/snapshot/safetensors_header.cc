#include "store/snapshot/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "config/json.h"
#include "config/printable_text.h"
#include "core/bytes.h"
#include "core/units.h"
#include "store/model/model_spec.h"

namespace sluice::store {
namespace {

using Json = nlohmann::json;

constexpr const char* kMetadata = "__metadata__";

std::optional<uint64_t> element_bytes(std::string_view dtype) noexcept {
  constexpr std::pair<std::string_view, uint64_t> kSizes[] = {
      {"F64", 8},  {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4},  {"U32", 4},     {"F16", 2},    {"I16", 2},
      {"BF16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, size] : kSizes) {
    if (name == dtype) return size;
  }
  return std::nullopt;
}

// The bytes of a tensor; nothing if they do not fit into 64 bits.
std::optional<uint64_t> tensor_bytes(uint64_t element, const std::vector<uint64_t>& shape) noexcept {
  uint64_t bytes = element;
  for (const uint64_t size : shape) {
    if (size != 0 && bytes > std::numeric_limits<uint64_t>::max() / size) return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

bool is_list_of_sizes(const Json& json) noexcept {
  return json.is_array() &&
         std::ranges::all_of(json, [](const Json& size) { return size.is_number_unsigned(); });
}

Result<SafetensorsEntry> read_entry(const std::string& name, const Json& json, uint64_t data_bytes) {
  const std::string tensor = "tensor " + config::in_quotes(name);
  if (!json.is_object()) return invalid(tensor + " is no object; expected dtype, shape and data_offsets");
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!json.contains(field)) return invalid(tensor + " has no " + field);
  }
  const Json& dtype = json["dtype"];
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  if (!dtype.is_string()) return invalid(tensor + ": dtype is no text");
  if (!is_list_of_sizes(shape)) return invalid(tensor + ": shape is no list of non-negative integers");
  if (!is_list_of_sizes(offsets) || offsets.size() != 2)
    return invalid(tensor + ": data_offsets is no list of two non-negative integers");
  SafetensorsEntry entry{.name = name,
                         .dtype = dtype.get<std::string>(),
                         .shape = shape.get<std::vector<uint64_t>>(),
                         .begin = offsets[0].get<uint64_t>(),
                         .end = offsets[1].get<uint64_t>()};
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return invalid(tensor + " has the bytes " + std::to_string(entry.begin) + " to " +
                   std::to_string(entry.end) + " of " + std::to_string(data_bytes) + " bytes of data");
  }
  if (const auto element = element_bytes(entry.dtype)) {
    const auto expected = tensor_bytes(*element, entry.shape);
    if (expected != entry.end - entry.begin) {
      return invalid(tensor + " has " + std::to_string(entry.end - entry.begin) + " bytes; " +
                     config::printable(entry.dtype) + ' ' + config::printable(shape_text(entry.shape)) +
                     " has " + (expected ? std::to_string(*expected) : "more than 2^64"));
    }
  }
  return entry;
}

Result<void> read_metadata(const Json& json, std::map<std::string, std::string>& metadata) {
  if (!json.is_object()) return invalid("__metadata__ is no object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return invalid("__metadata__." + config::printable(key) + " is no text");
    metadata[key] = value.get<std::string>();
  }
  return {};
}

Result<void> check_cover(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  uint64_t position = 0;
  const SafetensorsEntry* before = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != position) {
      const std::string previous =
          before == nullptr ? "the data begins" : config::in_quotes(before->name) + " ends";
      return invalid("tensor " + config::in_quotes(entry.name) + " begins at byte " +
                     std::to_string(entry.begin) + ", and " + previous + " at byte " +
                     std::to_string(position));
    }
    position = entry.end;
    before = &entry;
  }
  if (position == data_bytes) return {};
  return invalid("the tensors have " + std::to_string(position) + " bytes, and the file " +
                 std::to_string(data_bytes) + " bytes of data");
}

}  // namespace

std::string safetensors_header_text(const SafetensorsHeader& header) {
  Json json = {{kMetadata, header.metadata}};
  for (const SafetensorsEntry& entry : header.entries) {
    json[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = config::json_text(json);
  text.resize(round_up(text.size(), 8), ' ');
  std::array<std::byte, 8> length;
  store_le(length.data(), static_cast<uint64_t>(text.size()));
  return std::string(reinterpret_cast<const char*>(length.data()), length.size()) + text;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes) {
  // Format: "The header must begin with a { character"; no name twice, which the parser does not report.
  if (!json.starts_with('{')) return invalid("the header does not begin with {");
  std::set<std::string> names;
  std::string repeated;
  const auto note = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.insert(name).second && repeated.empty()) repeated = config::in_quotes(name);
    }
    return true;
  };
  const Json root = config::parse_json(json, note);
  if (root.is_discarded() || !root.is_object()) return invalid("the header is not a JSON object");
  if (!repeated.empty()) return invalid("tensor " + repeated + " is in the header twice");
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) {
      SLUICE_RETURN_IF_ERROR(read_metadata(value, header.metadata));
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(entry, read_entry(name, value, data_bytes));
    header.entries.push_back(std::move(entry));
  }
  std::ranges::sort(header.entries, {}, [](const auto& e) { return std::tuple(e.begin, e.end); });
  SLUICE_RETURN_IF_ERROR(check_cover(header.entries, data_bytes));
  return header;
}

}  // namespace sluice::store
