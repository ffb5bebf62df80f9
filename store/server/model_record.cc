#include "store/server/model_record.h"

#include <nlohmann/json.hpp>

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
         config::quoted(job);
}

std::string record_text(const ModelRecord& record) {
  return nlohmann::json{
      {"model", record.id}, {"job", record.job}, {"spec", nlohmann::json::parse(model_text(record.spec))}}
      .dump();
}

std::string state_text(const CoordinatedState& state) {
  nlohmann::json shards = nlohmann::json::array();
  for (const ShardHolders& s : state.shards)
    shards.push_back({{"owner", s.owner}, {"copy", s.copy}, {"generation", s.generation}});
  return nlohmann::json{{"started", state.is_started}, {"version", state.version}, {"shards", shards}}.dump();
}

Result<ModelRecord> parse_record(const Entry& entry) {
  ModelRecord record;
  record.revision = entry.revision;
  try {
    const auto json = nlohmann::json::parse(entry.value);
    record.id = json.at("model").get<uint64_t>();
    record.job = json.at("job").get<std::string>();
    auto spec = parse_model(json.at("spec").dump());
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
    const auto json = nlohmann::json::parse(entry.value);
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
