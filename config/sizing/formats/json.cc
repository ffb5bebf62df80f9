#include "config/json.h"
#include "config/sizing/formats/formats.h"

namespace sluice::config {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json as_json(const VmType& vm) {
  return {{"type", text_or_null(vm.type)},
          {"provider", text_or_null(vm.provider)},
          {"gbps", vm.gbps},
          {"kind", text_or_null(vm.kind)},
          {"network", to_string(vm.network())},
          {"arch", text_or_null(vm.arch)},
          {"usd_per_hour", or_null(vm.usd_per_hour)},
          {"price_region", text_or_null(vm.price_region)},
          {"bandwidth_source", text_or_null(vm.bandwidth_source)},
          {"bandwidth_date", text_or_null(vm.bandwidth_date)},
          {"price_source", text_or_null(vm.price_source)},
          {"price_date", text_or_null(vm.price_date)}};
}

Json as_json(const Candidate& c) {
  return {{"type", c.vm.type},
          {"arch", text_or_null(c.vm.arch)},
          {"kind", text_or_null(c.vm.kind)},
          {"gbps", c.vm.gbps},
          {"reducers", c.count},
          {"coverage", c.coverage},
          {"usd_per_hour", or_null(c.usd_per_hour)},
          {"extra_share", or_null(c.extra)},
          {"break_even_share", or_null(c.break_even)}};
}

Json as_json(const PoolStep& s) {
  return {{"reducers", s.reducers},
          {"time", s.time},
          {"speedup", s.speedup},
          {"co_located_share", s.co_located_share},
          {"usd_per_hour", or_null(s.usd_per_hour)},
          {"extra_share", or_null(s.extra)},
          {"pays_from_share", or_null(s.pays_from)}};
}

}  // namespace

std::string plan_as_json(const Plan& plan) {
  const Candidate& c = plan.chosen;
  Json worker = as_json(plan.worker);
  worker["count"] = plan.request.workers;
  worker["gpus_per_node"] = plan.gpus_per_node;
  worker["ranks_per_host"] =
      plan.request.ranks_per_host != 0 ? Json(plan.request.ranks_per_host) : Json(nullptr);
  Json out = {
      {"verdict", to_string(plan.verdict)},
      {"sentence", verdict_sentence(plan)},
      {"reducers", c.count},
      {"coverage", c.coverage},
      {"headroom", plan.request.headroom},
      {"speedup", plan.speedup},
      {"speedup_flat_ring", plan.speedup_flat_ring},
      {"speedup_tree", plan.speedup_tree},
      {"workers", std::move(worker)},
      {"reducer", as_json(plan.reducer)},
      {"message_bytes", plan.request.message_bytes},
      {"predicted_seconds",
       {{"reducers", plan.times.reducers},
        {"ring_of_nodes", plan.times.ring_of_nodes},
        {"flat_ring", plan.times.flat_ring},
        {"tree", plan.times.tree}}},
      {"cost",
       {{"workers_usd_per_hour", or_null(plan.workers_usd_per_hour)},
        {"reducers_usd_per_hour", or_null(c.usd_per_hour)},
        {"extra_share", or_null(c.extra)},
        {"break_even_share", or_null(c.break_even)}}},
      {"flows",
       {{"pair_gbps", plan.pair_gbps},
        {"flow_gbps", plan.flow_gbps > 0 ? Json(plan.flow_gbps) : Json(nullptr)},
        {"flows_per_pair", plan.flows_per_pair},
        {"lanes_per_session", plan.lanes_per_session}}},
      {"memory",
       {{"bytes_per_communicator_and_head", plan.session_bytes},
        {"heads_at_most", plan.max_heads},
        {"communicators", plan.request.communicators},
        {"memory_limit_bytes", plan.memory_limit},
        {"resident_bytes_at_most", plan.resident_bytes}}},
      {"busy_processors_per_reducer", plan.busy_processors},
      {"cpu_seconds_per_gb", plan.cpu_seconds_per_gb},
      {"co_located_share", plan.co_located_share},
      {"exposed_share", plan.request.exposed},
      {"paying_reducers", or_null(plan.pool_sizes.paying)},
      {"pool_sizes", Json::array()},
      {"candidates", Json::array()},
      {"warnings", plan.warnings},
      {"notes", plan.notes},
  };
  for (const PoolStep& step : plan.pool_sizes.steps) out["pool_sizes"].push_back(as_json(step));
  for (const Candidate& candidate : plan.candidates) out["candidates"].push_back(as_json(candidate));
  // A table's notes may contain invalid UTF-8.
  return json_text(out, 2) + "\n";
}

}  // namespace sluice::config
