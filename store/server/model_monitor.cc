#include "store/server/model_monitor.h"

#include <algorithm>
#include <utility>

#include "config/json.h"
#include "store/model/memory_needed.h"

namespace sluice::store {
namespace {

constexpr size_t kMaxReason = 200;

nlohmann::json model_status(const ModelCounters& m, Nanos now) {
  nlohmann::json pushes = nlohmann::json::object();
  for (size_t i = 0; i < m.pushes.size(); ++i) {
    if (const uint64_t n = m.pushes[i].get(); n != 0) pushes[std::string(wire::kPushOutcomeNames[i])] = n;
  }
  nlohmann::json status = {{"name", m.name},
                           {"mode", m.mode},
                           {"rule", m.rule},
                           {"version", m.version()},
                           {"shards", m.shards},
                           {"owned", m.owned.get()},
                           {"copied", m.copied.get()},
                           {"leads", m.leads.get() != 0},
                           {"steps", m.steps.get()},
                           {"failed_steps", m.failed_steps.get()},
                           {"step_age_ms", m.step_age(now) / kMillisecond},
                           {"pushes", std::move(pushes)},
                           {"pulls", m.pulls.get()},
                           {"ended_pulls", m.ended_pulls.get()},
                           {"delta_bytes", m.delta_bytes.get()},
                           {"pull_bytes", m.pull_bytes.get()},
                           {"copy_bytes", m.copy_bytes.get()},
                           {"staged", m.staged.get()},
                           {"staged_bytes", m.staged_bytes.get()},
                           {"memory_bytes", m.memory_bytes},
                           {"disk_bytes", m.disk_bytes.get()}};
  if (const std::string reason = m.unavailable(); !reason.empty())
    status["unavailable"] = reason.substr(0, kMaxReason);
  return status;
}

// A reason may quote a peer, in any encoding.
std::string text_of(const nlohmann::json& json) {
  return config::json_text(json);
}

}  // namespace

ModelCounters::ModelCounters(const ModelSpec& spec, const ModelLayout& layout)
    : name(spec.name),
      mode(to_string(spec.mode.kind)),
      rule(to_string(spec.rule.kind)),
      shards(layout.shards()),
      memory_bytes(memory_needed(spec, layout, kExpectedWorkers).total()) {}

void ModelCounters::set_version(uint64_t version) noexcept {
  uint64_t known = version_.load();
  while (known < version) {
    if (!version_.compare_exchange_weak(known, version)) continue;
    stepped_at_ = monotonic_now();
    return;
  }
}

void ModelCounters::set_unavailable(const std::string& reason) {
  if (!is_unavailable_.exchange(!reason.empty()) && reason.empty()) return;
  const std::scoped_lock lock(mutex_);
  unavailable_ = reason;
}

std::string ModelCounters::unavailable() const {
  const std::scoped_lock lock(mutex_);
  return unavailable_;
}

void ModelMonitor::add(const std::shared_ptr<ModelCounters>& model) {
  const std::scoped_lock lock(mutex_);
  models_.emplace_back(model);
}

std::vector<std::shared_ptr<const ModelCounters>> ModelMonitor::models() {
  std::vector<std::shared_ptr<const ModelCounters>> all;
  const std::scoped_lock lock(mutex_);
  std::erase_if(models_, [&](const auto& entry) {
    auto model = entry.lock();
    if (!model) return true;
    all.push_back(std::move(model));
    return false;
  });
  return all;
}

bool ModelMonitor::has_pushes() {
  if (!has_pushes_ && std::ranges::any_of(models(), [](const auto& m) { return m->delta_bytes.get() != 0; }))
    has_pushes_ = true;
  return has_pushes_;
}

std::string ModelMonitor::status_json(size_t max_bytes) {
  auto all = models();
  std::ranges::sort(all, {}, [](const auto& m) { return m->name; });
  const Nanos now = monotonic_now();
  size_t bytes = 0;
  nlohmann::json list = nlohmann::json::array();
  for (const auto& model : all) {
    if (list.size() == kMaxListed || bytes > max_bytes) continue;
    nlohmann::json status = model_status(*model, now);
    bytes += text_of(status).size() + 1;
    if (bytes <= max_bytes) list.push_back(std::move(status));
  }
  return text_of({{"models", std::move(list)},
                  {"store",
                   {{"models", all.size()},
                    {"clients", clients()},
                    {"budgets", budgets_.status()},
                    {"memory", {{"limit_bytes", budget_->limit()}, {"reserved_bytes", budget_->used()}}}}}});
}

}  // namespace sluice::store
