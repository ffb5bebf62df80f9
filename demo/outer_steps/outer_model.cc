#include "demo/outer_steps/outer_model.h"

#include <fmt/format.h>

#include <array>
#include <exception>

#include "bench/e2e/process/exit_codes.h"
#include "config/json.h"
#include "core/log.h"

namespace sluice::demo {
namespace {

using bench::Failure;

constexpr uint32_t kRemoveTimeoutMs = 5000;

void check(sluice_status status, const char* operation, bench::ExitCode code = bench::kExitFailure) {
  if (status != SLUICE_OK)
    throw Failure(code, fmt::format("cannot {}: {} ({})", operation, sluice_store_error(),
                                    sluice_status_string(status)));
}

}  // namespace

OuterModel::OuterModel(const bench::WorkerOptions& pool, uint32_t island, uint32_t timeout_ms) {
  sluice_store_options options;
  sluice_store_options_init(&options);
  options.reducers = pool.reducers.c_str();
  if (timeout_ms != 0) options.timeout_ms = timeout_ms;
  options.worker = island + 1;  // a step sums in this order, so the same run gives the same bits
  std::array<char, 1024> error{};
  sluice_store* store = nullptr;
  if (sluice_store_open(&options, &store, error.data(), error.size()) != SLUICE_OK)
    throw Failure(bench::kExitUnavailable, fmt::format("cannot keep a model: {}", error.data()));
  store_.reset(store);
}

void OuterModel::create(const std::string& name, const OuterRule& rule, std::span<const float> weights) {
  const nlohmann::json specification = {
      {"name", name},
      {"versions", 2},
      {"mode", {{"kind", "sync"}, {"quorum", rule.islands}, {"grace_ms", 0}}},
      {"rule", {{"kind", "nesterov"}, {"learning_rate", rule.learning_rate}, {"momentum", rule.momentum}}},
      {"tensors", {{{"name", "parameters"}, {"dtype", "f32"}, {"shape", {weights.size()}}}}}};
  const void* const tensor = weights.data();
  int created = 0;
  check(sluice_store_create(store_.get(), config::json_text(specification).c_str(), &tensor, &created),
        "create the model", bench::kExitUnavailable);
}

uint64_t OuterModel::push(std::span<const float> displacement, uint64_t base) {
  const void* const tensor = displacement.data();
  sluice_push_outcome outcome{};
  uint64_t version = 0;
  check(sluice_store_push(store_.get(), &tensor, base, 1, SLUICE_F32, 0, &outcome, &version),
        "push to the model");
  // Each step needs the push of every island, so none can be late.
  if (outcome != SLUICE_PUSH_CONTAINED)
    throw Failure(bench::kExitFailure,
                  fmt::format("version {} does not contain the push of this island: another run uses the "
                              "same session id",
                              version));
  return version;
}

uint64_t OuterModel::pull(std::span<float> weights, uint64_t at_least) {
  void* const tensor = weights.data();
  uint64_t version = 0;
  check(sluice_store_pull(store_.get(), &tensor, at_least, SLUICE_F32, 0, &version), "pull from the model");
  return version;
}

void OuterModel::remove(const std::string& name) {
  check(sluice_store_delete(store_.get(), name.c_str()), "delete the model");
}

std::string outer_model_name(const std::string& session) {
  return "demo-outer-steps-" + session;
}

void remove_outer_model(const bench::WorkerOptions& pool, const std::string& session) noexcept {
  const std::string name = outer_model_name(session);
  try {
    OuterModel(pool, 0, kRemoveTimeoutMs).remove(name);
  } catch (const std::exception& error) {
    log::warn(fmt::format("model \"{}\" is left on the reducers: {}; delete it with `sluice store delete`",
                          name, error.what()));
  }
}

}  // namespace sluice::demo
