#include "store/model/model_state.h"

#include "config/json.h"
#include "config/printable_text.h"
#include "store/model/model_json.h"

namespace sluice::store {
namespace {

using Json = nlohmann::json;

tl::unexpected<Error> bad_field(const std::string& name, const std::string& expected) {
  return fail(Errc::kBadField, name + " is not " + expected);
}

Result<uint64_t> read_integer(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return bad_field(name, "a non-negative integer");
  return found->get<uint64_t>();
}

Result<bool> read_bool(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_boolean()) return bad_field(name, "true or false");
  return found->get<bool>();
}

Result<ShardOwner> read_owner(const Json& json) {
  if (!json.is_object()) return bad_field("the owner", "an object");
  ShardOwner owner;
  SLUICE_ASSIGN_OR_RETURN(store, read_integer(json, "store"));
  owner.store = store;
  SLUICE_ASSIGN_OR_RETURN(generation, read_integer(json, "generation"));
  owner.generation = generation;
  const auto address = json.find("address");
  if (address == json.end() || !address->is_string()) return bad_field("address", "a text");
  const auto parsed = config::parse_endpoints(address->get_ref<const std::string&>());
  if (!parsed || parsed->size() != 1)
    return bad_field("address " + config::in_quotes(address->get_ref<const std::string&>()), "host:port");
  owner.address = parsed->front();
  owner.address.weight = 1;
  return owner;
}

}  // namespace

Result<ModelState> parse_model_state(std::string_view text) {
  constexpr size_t kMaxValues = kMaxModelValues + 4 * config::kMaxEndpoints + 100;
  if (const std::string excess = config::json_excess(text, kMaxValues); !excess.empty())
    return fail(Errc::kBadField, "the description of the model " + excess);
  const Json json = config::parse_json(text);
  if (!json.is_object()) return bad_field("the description of the model", "a JSON object");
  ModelState state;
  const auto spec = json.find("spec");
  if (spec == json.end() || !spec->is_object()) return bad_field("spec", "an object");
  // Invalid UTF-8 makes the text invalid instead of throwing.
  auto parsed = parse_model(config::json_text(*spec));
  if (!parsed) return fail(Errc::kBadField, "spec: " + parsed.error().text);
  state.spec = std::move(*parsed);
  SLUICE_ASSIGN_OR_RETURN(model, read_integer(json, "model"));
  state.model = model;
  SLUICE_ASSIGN_OR_RETURN(started, read_bool(json, "started"));
  state.started = started;
  SLUICE_ASSIGN_OR_RETURN(version, read_integer(json, "version"));
  state.version = version;
  if (json.contains("created")) {
    SLUICE_ASSIGN_OR_RETURN(created, read_bool(json, "created"));
    state.created = created;
  }
  const auto shards = json.find("shards");
  if (shards == json.end() || !shards->is_array() || shards->empty() ||
      shards->size() > config::kMaxEndpoints) {
    return bad_field("shards", "a list of 1 to " + std::to_string(config::kMaxEndpoints) + " owners");
  }
  for (size_t i = 0; i < shards->size(); ++i) {
    auto owner = read_owner((*shards)[i]);
    if (!owner) return add_context("shards[" + std::to_string(i) + "]", owner.error());
    state.shards.push_back(std::move(*owner));
  }
  return state;
}

Result<std::vector<std::string>> parse_model_names(std::string_view text) {
  constexpr size_t kMaxNames = size_t{1} << 20;
  const Json json = config::parse_limited_json(text, kMaxNames);
  if (!json.is_array()) return bad_field("the list of models", "a JSON list");
  std::vector<std::string> names;
  for (const Json& name : json) {
    if (!name.is_string() || name.get_ref<const std::string&>().size() > kMaxModelName)
      return bad_field("an entry of the list of models", "a name");
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace sluice::store
