// What MODEL_QUERY and START_MODEL ask of a StoreServer.
#include <string>
#include <utility>
#include <vector>

#include "config/json.h"
#include "config/printable_text.h"
#include "store/model/memory_needed.h"
#include "store/model/model_json.h"
#include "store/server/store_server.h"

namespace sluice::store {

Result<std::string> StoreServer::answer(const Known& known, std::optional<bool> created) {
  const auto live = live_stores();
  if (!live) return tl::unexpected(live.error());
  nlohmann::json shards = nlohmann::json::array();
  for (const ShardHolders& s : known.state.shards) {
    const auto owner = live->find(s.owner);
    if (owner == live->end()) {
      return fail(Errc::kReset, "reducer " + std::to_string(s.owner) + " has shard " +
                                    std::to_string(shards.size()) + " of model \"" + known.record.spec.name +
                                    "\" and does not run");
    }
    shards.push_back(
        {{"store", s.owner}, {"address", owner->second}, {"copy", s.copy}, {"generation", s.generation}});
  }
  nlohmann::json json = {{"spec", config::parse_json(model_text(known.record.spec))},
                         {"model", known.record.id},
                         {"job", known.record.job},
                         {"shards", shards},
                         {"started", known.state.is_started},
                         {"version", known.state.version}};
  if (created) json["created"] = *created;
  return config::json_text(json);
}

Result<std::string> StoreServer::describe(const std::string& name) {
  const auto known = read(name);
  if (!known) return tl::unexpected(known.error());
  if (!*known) return fail(Errc::kUnknownSession, "there is no model \"" + name + "\"");
  return answer(**known, std::nullopt);
}

Result<std::string> StoreServer::list() {
  const auto listed = options_.coordinator->list(kModelKeys);
  if (!listed) return add_context("the coordinator", listed.error());
  nlohmann::json names = nlohmann::json::array();
  for (const Entry& entry : listed->entries) names.push_back(entry.key.substr(kModelKeys.size()));
  return config::json_text(names);
}

Result<std::string> StoreServer::create(const std::string& specification, const std::string& job) {
  if (config::printable(job, job.size()) != job)
    return fail(Errc::kBadField, "the job of a model has other characters than printable ASCII");
  auto spec = parse_model(specification);
  if (!spec) return tl::unexpected(spec.error());
  const std::string name = spec->name;
  const auto live = live_stores();
  if (!live) return tl::unexpected(live.error());
  std::vector<StoreId> stores;
  for (const auto& [id, address] : *live) stores.push_back(id);
  if (stores.empty()) return fail(Errc::kReset, "no reducer is announced in the coordinator");
  const ModelLayout layout(*spec, static_cast<uint32_t>(stores.size()));
  const MemoryNeeded needed = memory_needed(*spec, layout, kExpectedWorkers);
  if (auto error = check_memory(*spec, needed, options_.monitor->budget()->limit(),
                                options_.monitor->budget()->used()))
    return tl::unexpected(*error);
  // Until take() holds one. Who creates a model that exists needs none.
  auto place = budgets().take_model(job, needed.files());
  if (!place) {
    const auto existing = options_.coordinator->get(model_key(name));
    if (!existing) return add_context("the coordinator", existing.error());
    if (!*existing) return tl::unexpected(place.error());
  }
  CoordinatedState state;
  for (size_t i = 0; i < stores.size(); ++i) {
    const StoreId copy = stores.size() > 1 ? stores[(i + 1) % stores.size()] : kNoStore;
    state.shards.push_back({.owner = stores[i], .copy = copy, .generation = 1});
  }
  const ModelRecord record{.id = random_id(), .job = job, .spec = std::move(*spec)};
  state.model = record.id;
  auto made = options_.coordinator->create(model_key(name), record_text(record));
  if (!made) return add_context("the coordinator", made.error());
  if (!made->is_done()) {
    if (!made->entry) return fail(Errc::kReset, "model \"" + name + "\" is being deleted");
    const auto existing = parse_record(*made->entry);
    if (!existing) return tl::unexpected(existing.error());
    if (const std::string text = difference(existing->spec, record.spec); !text.empty())
      return fail(Errc::kMismatch, "model \"" + name + "\" exists: " + text);
    if (existing->job != job) return fail(Errc::kUnauthenticated, other_job(name, existing->job, job));
    state.model = existing->id;
  }
  // Also if its creator has stopped before it wrote the state.
  SLUICE_RETURN_IF_ERROR(write_first_state(name, state));
  const auto known = read(name);
  if (!known) return tl::unexpected(known.error());
  if (!*known) return fail(Errc::kReset, "model \"" + name + "\" has been deleted");
  if (place) place->reset();
  if (const auto taken = take(**known); !taken) {
    // For example, the disk is full. Nobody else would start the model.
    if (made->is_done()) static_cast<void>(remove(name, job));
    return tl::unexpected(taken.error());
  }
  return answer(**known, made->is_done());
}

Result<void> StoreServer::write_first_state(const std::string& name, const CoordinatedState& state) {
  const std::string key = state_key(name);
  for (;;) {
    const auto entry = options_.coordinator->get(key);
    if (!entry) return add_context("the coordinator", entry.error());
    if (*entry) {
      const auto left = parse_state(**entry);
      if (!left) return tl::unexpected(left.error());
      if (left->model == 0 || left->model == state.model) return {};
    }
    // After the state: it is not replaced for a model that was deleted before.
    const auto record = options_.coordinator->get(model_key(name));
    if (!record) return add_context("the coordinator", record.error());
    if (!*record) return {};
    const auto known = parse_record(**record);
    if (!known) return tl::unexpected(known.error());
    if (known->id != state.model) return {};
    const std::string text = state_text(state);
    const auto wrote = *entry ? options_.coordinator->compare_and_swap(key, (*entry)->revision, text)
                              : options_.coordinator->create(key, text);
    if (!wrote) return add_context("the coordinator", wrote.error());
    if (wrote->is_done()) return {};
  }
}

Result<void> StoreServer::start_model(uint64_t id, uint64_t version) {
  auto model = find(id);
  if (!model) return tl::unexpected(model.error());
  const std::string name = (*model)->spec().name;
  for (;;) {
    const auto known = read(name);
    if (!known) return tl::unexpected(known.error());
    if (!*known) return fail(Errc::kUnknownSession, "model \"" + name + "\" has been deleted");
    CoordinatedState state = (*known)->state;
    if (!state.is_started) {
      if (!(*model)->has_version(version))
        return fail(Errc::kBadView, "version " + std::to_string(version) + " of model \"" + name +
                                        "\" has not been installed");
      state.is_started = true;
      state.version = version;
      const auto swapped = options_.coordinator->compare_and_swap(state_key(name), (*known)->state.revision,
                                                                  state_text(state));
      if (!swapped) return add_context("the coordinator", swapped.error());
      if (!swapped->is_done()) continue;
      state.revision = swapped->entry->revision;
    }
    if (state.version != version) return fail(Errc::kMismatch, "model \"" + name + "\" has been started");
    PeerLinks links([this](StoreId store) { return connect_to(store); });
    for (uint32_t i = 0; i < state.shards.size(); ++i) {
      const wire::Committed message{.model = id, .shard = i, .version = version};
      SLUICE_RETURN_IF_ERROR(links.send(state.shards[i].owner, message));
      auto done = links.receive<wire::Done>(state.shards[i].owner);
      if (!done) return tl::unexpected(done.error());
    }
    return take({(*known)->record, state});
  }
}

// The record that is removed is the one whose job was compared.
Result<void> StoreServer::remove(const std::string& name, const std::string& job) {
  for (;;) {
    const auto entry = options_.coordinator->get(model_key(name));
    if (!entry) return add_context("the coordinator", entry.error());
    if (!*entry) return {};
    const auto record = parse_record(**entry);
    if (record && record->job != job) return fail(Errc::kUnauthenticated, other_job(name, record->job, job));
    const auto removed = options_.coordinator->remove(model_key(name), (*entry)->revision);
    if (!removed) return add_context("the coordinator", removed.error());
    if (removed->outcome != Outcome::kConflict) return remove_state(name, record ? record->id : 0);
  }
}

Result<void> StoreServer::remove_state(const std::string& name, uint64_t model) {
  for (;;) {
    const auto entry = options_.coordinator->get(state_key(name));
    if (!entry) return add_context("the coordinator", entry.error());
    if (!*entry) break;
    const auto state = parse_state(**entry);
    if (model != 0 && state && state->model != 0 && state->model != model) break;
    const auto removed = options_.coordinator->remove(state_key(name), (*entry)->revision);
    if (!removed) return add_context("the coordinator", removed.error());
    if (removed->outcome != Outcome::kConflict) break;
  }
  drop([&](const HostedModel& m) { return model != 0 ? m.id() == model : m.spec().name == name; });
  return {};
}

void StoreServer::drop(const std::function<bool(const HostedModel&)>& which) {
  std::vector<Model> dropped;
  {
    const std::scoped_lock lock(mutex_);
    for (auto at = models_.begin(); at != models_.end();) {
      const auto next = std::next(at);
      if (which(*at->second.hosted)) {
        dropped.push_back(std::move(at->second));
        models_.erase(at);
      }
      at = next;
    }
  }
  for (Model& model : dropped) {
    if (model.leader) model.leader->end();
    model.hosted->remove();
  }
}

}  // namespace sluice::store
