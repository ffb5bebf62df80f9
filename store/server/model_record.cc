#include "store/server/model_record.h"

#include "config/json.h"
#include "config/printable_text.h"
#include "store/model/model_json.h"

namespace sluice::store {
namespace {

tl::unexpected<Error> bad_value(const Entry& entry, const std::string& reason) {
  return fail(Errc::kBadField, "the coordinator's key " + entry.key + ": " + reason);
}

}  // namespace

std::string model_key(const std::string& name) {
  return std::string(kModelKeys) + name;
}
std::string state_key(const std::string& name) {
  return std::string(kStateKeys) + name;
}
std::string store_key(StoreId id) {
  return std::string(kStoreKeys) + std::to_string(id);
}

std::string other_job(const std::string& model, const std::string& owner, const std::string& job) {
  return "model \"" + model + "\" belongs to job \"" + owner + "\"; this client is of job " +
         config::in_quotes(job);
}

std::string record_text(const ModelRecord& record) {
  return config::json_text(nlohmann::json{
      {"model", record.id}, {"job", record.job}, {"spec", config::parse_json(model_text(record.spec))}});
}

std::string state_text(const CoordinatedState& state) {
  nlohmann::json shards = nlohmann::json::array();
  for (const ShardHolders& s : state.shards)
    shards.push_back({{"owner", s.owner}, {"copy", s.copy}, {"generation", s.generation}});
  return config::json_text(nlohmann::json{
      {"model", state.model}, {"started", state.is_started}, {"version", state.version}, {"shards", shards}});
}

Result<ModelRecord> parse_record(const Entry& entry) {
  ModelRecord record;
  record.revision = entry.revision;
  try {
    const auto json = config::parse_json(entry.value);
    if (json.is_discarded()) return bad_value(entry, "no JSON");
    record.id = json.at("model").get<uint64_t>();
    record.job = json.at("job").get<std::string>();
    auto spec = parse_model(config::json_text(json.at("spec")));
    if (!spec) return bad_value(entry, spec.error().text);
    record.spec = std::move(*spec);
  } catch (const nlohmann::json::exception& e) {
    return bad_value(entry, e.what());
  }
  return record;
}

Result<CoordinatedState> parse_state(const Entry& entry) {
  CoordinatedState state;
  state.revision = entry.revision;
  try {
    const auto json = config::parse_json(entry.value);
    if (json.is_discarded()) return bad_value(entry, "no JSON");
    state.model = json.value("model", uint64_t{0});
    state.is_started = json.at("started").get<bool>();
    state.version = json.at("version").get<uint64_t>();
    for (const auto& s : json.at("shards")) {
      state.shards.push_back(
          {s.at("owner").get<uint64_t>(), s.at("copy").get<uint64_t>(), s.at("generation").get<uint64_t>()});
    }
  } catch (const nlohmann::json::exception& e) {
    return bad_value(entry, e.what());
  }
  if (state.shards.empty()) return bad_value(entry, "no shards");
  return state;
}

}  // namespace sluice::store
