#include "demo/digits/digits.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/e2e/pool/pool_status.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/worker/rank_info.h"
#include "config/json.h"
#include "config/pool.h"
#include "core/clock.h"

namespace sluice::demo {
namespace {

using nlohmann::ordered_json;

constexpr const char* kSchema = "sluice.demo.digits/1";
constexpr size_t kBarWidth = 24;
constexpr Nanos kStatusTimeout = 5 * kSecond;

double seconds(Nanos t) {
  return 1e-9 * static_cast<double>(t);
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::string bytes_text(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes * 1e-3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes * 1e-6);
  return fmt::format("{:.2f} GB", bytes * 1e-9);
}

using UsageByReducer = std::vector<std::pair<std::string, bench::PoolUsage>>;  // in the order of the pool

// Returns what each reducer has used since its start, or nothing if one does not answer.
UsageByReducer query_reducers(const bench::WorkerOptions& worker) {
  auto pool = config::read_reducers(worker.reducers);
  engine::Identity identity;
  if (!pool || !engine::read_credentials({}, identity)) return {};
  UsageByReducer usages;
  for (const config::Endpoint& reducer : *pool) {
    auto usage = bench::query_usage({reducer}, identity, kStatusTimeout);
    if (!usage) return {};
    usages.emplace_back(config::to_string(reducer), *usage);
  }
  return usages;
}

// Returns what each reducer has used since `before`: a standing pool has served other jobs.
ordered_json shares_since(const UsageByReducer& before, const bench::WorkerOptions& worker) {
  ordered_json shares = ordered_json::array();
  const UsageByReducer now = query_reducers(worker);
  if (now.size() != before.size()) return shares;
  for (size_t i = 0; i < now.size(); ++i) {
    const bench::PoolUsage& then = before[i].second;
    shares.push_back({{"reducer", now[i].first},
                      {"bytes_received", now[i].second.bytes_received - then.bytes_received},
                      {"cpu_seconds", now[i].second.cpu_seconds - then.cpu_seconds}});
  }
  return shares;
}

// The training and the report. Only the process with `is_reporting` evaluates and prints.
class Demo {
 public:
  Demo(const DigitsOptions& options, bool is_reporting)
      : options_(options),
        parts_(split(bench::value_or_fail(load_digits(), bench::kExitFailure))),
        training_(parts_.train, options.training),
        is_reporting_(is_reporting) {}

  void train(const Training::SumShards& sum_shards) {
    const Nanos begin = monotonic_now();
    for (uint32_t e = 0; e < options_.training.epochs; ++e) {
      const EpochResult result = training_.run_epoch(sum_shards);
      if (!is_reporting_) continue;
      const Score score = training_.network().evaluate(parts_.held_out);
      accuracy_ = static_cast<double>(score.correct) / static_cast<double>(parts_.held_out.size());
      loss_ = result.loss;
      const size_t done = kBarWidth * result.epoch / options_.training.epochs;
      print(fmt::format(
          "epoch {:>3}/{} [{}{}] loss {:.4f}  accuracy {:6.2f} %  held-out {:6.2f} %  {:6.2f} s\n",
          result.epoch, options_.training.epochs, std::string(done, '#'), std::string(kBarWidth - done, '.'),
          result.loss, 100.0 * static_cast<double>(result.train_accuracy), 100.0 * accuracy_,
          seconds(monotonic_now() - begin)));
    }
    seconds_ = seconds(monotonic_now() - begin);
  }

  [[nodiscard]] Training& training() noexcept { return training_; }
  [[nodiscard]] double training_seconds() const noexcept { return seconds_; }

  void print_header(const std::string& processes) const {
    if (!is_reporting_) return;
    print(
        fmt::format("handwritten digits (UCI, CC BY 4.0): {} images to train, {} held out\n"
                    "network 64-{}-10, {} parameters; batches of {} images, shared by {}\n",
                    parts_.train.size(), parts_.held_out.size(), options_.training.hidden,
                    training_.network().parameters().size(), options_.training.batch, processes));
  }

  void print_accuracy() const {
    print(fmt::format("held-out accuracy   {:.2f} % ({:.0f} of {} images that were never trained on)\n",
                      100 * accuracy_, accuracy_ * static_cast<double>(parts_.held_out.size()),
                      parts_.held_out.size()));
  }

  [[nodiscard]] ordered_json json(const char* mode) const {
    const TrainingOptions& t = options_.training;
    return {{"schema", kSchema},
            {"mode", mode},
            {"workers", t.workers},
            {"epochs", t.epochs},
            {"batch", t.batch},
            {"hidden", t.hidden},
            {"seed", t.seed},
            {"train_images", parts_.train.size()},
            {"held_out_images", parts_.held_out.size()},
            {"held_out_accuracy", accuracy_},
            {"loss", loss_},
            {"weights_hash", fmt::format("{:016x}", training_.weights_hash())},
            {"seconds", seconds_}};
  }

  void write_json(const ordered_json& json) const {
    bench::write_result_file(options_.json, config::json_text(json, 2) + "\n");
  }

  [[nodiscard]] bool is_accurate() const noexcept {
    return !is_reporting_ || accuracy_ >= options_.min_accuracy;
  }

 private:
  const DigitsOptions& options_;
  Split parts_;
  Training training_;
  bool is_reporting_;
  double accuracy_ = 0;
  double loss_ = 0;
  double seconds_ = 0;
};

}  // namespace

int run_digits_single(const DigitsOptions& options) {
  Demo demo(options, true);
  demo.print_header(fmt::format("{} shards in one process", options.training.workers));
  demo.train(sum_in_one_process(demo.training(), options.training.workers));
  print("\n");
  demo.print_accuracy();
  print(fmt::format("weights             hash {:016x}\n", demo.training().weights_hash()));
  ordered_json json = demo.json("single");
  json["weights_identical"] = nullptr;  // a single process
  json["bytes_reduced"] = 0;
  demo.write_json(json);
  return demo.is_accurate() ? bench::kExitOk : bench::kExitCheckFailed;
}

int run_digits_worker(const DigitsOptions& options, const bench::WorkerOptions& worker) {
  const bool is_reporting = worker.rank == 0;
  Demo demo(options, is_reporting);
  bench::WorkerSession session(worker);
  const size_t reducers = session.stats().reducers;
  std::unique_ptr<bench::PluginAllreduce> plugin;
  if (options.plugin.use) plugin = std::make_unique<bench::PluginAllreduce>(options.plugin, worker, session);
  const UsageByReducer usage_before = is_reporting ? query_reducers(worker) : UsageByReducer();
  demo.print_header(fmt::format("{} over {} reducer{}{}", bench::workers_text(worker), reducers,
                                reducers == 1 ? "" : "s",
                                plugin ? ",\nthrough " + plugin->path() + " as in NCCL" : ""));

  std::vector<float> own(demo.training().total_size());
  session.register_memory(own.data(), own.size() * sizeof(float));
  Nanos allreduce_time = 0;
  uint64_t operations = 0;
  demo.train([&](std::span<const uint32_t> batch, std::span<float> total) {
    demo.training().compute_shard(batch, worker.rank, own);
    const Nanos begin = monotonic_now();
    if (plugin) {
      plugin->allreduce(own.data(), total.data(), own.size(), wire::DType::kF32, wire::Op::kSum);
    } else {
      session.allreduce(own.data(), total.data(), own.size(), wire::DType::kF32, wire::Op::kSum);
    }
    allreduce_time += monotonic_now() - begin;
    ++operations;
  });
  const uint64_t hash = demo.training().weights_hash();
  const bool identical = session.reduce(hash, wire::Op::kMin) == session.reduce(hash, wire::Op::kMax);
  plugin.reset();
  const sluice_stats stats = session.stats();
  const ordered_json shares = is_reporting ? shares_since(usage_before, worker) : ordered_json::array();
  session.close();
  if (!is_reporting) return identical ? bench::kExitOk : bench::kExitCheckFailed;

  const double own_bytes = static_cast<double>(operations) * static_cast<double>(own.size() * sizeof(float));
  const double rate = own_bytes / seconds(allreduce_time) * 1e-9;
  print("\n");
  demo.print_accuracy();
  print(fmt::format("weights             {} on {} workers, hash {:016x}\n",
                    identical ? "bit-identical" : "DIFFERENT", worker.ranks, hash));
  print(fmt::format("reduced             {} in {} allreduces of {} from {} workers\n",
                    bytes_text(own_bytes * worker.ranks), operations,
                    bytes_text(static_cast<double>(own.size() * sizeof(float))), worker.ranks));
  print(fmt::format(
      "bandwidth           {:.3f} GB/s per worker and direction during allreduce; allreduce took {:.0f} % "
      "of {:.2f} s,\n"
      "                    including the wait for the slowest worker\n",
      rate, 100 * seconds(allreduce_time) / demo.training_seconds(), demo.training_seconds()));
  double pool_bytes = 0;
  for (const auto& share : shares) pool_bytes += share["bytes_received"].get<double>();
  for (const auto& share : shares) {
    print(fmt::format("reducer             {}: {:.1f} % of the bytes, {:.2f} CPU s\n",
                      share["reducer"].get<std::string>(),
                      pool_bytes > 0 ? 100 * share["bytes_received"].get<double>() / pool_bytes : 0.0,
                      share["cpu_seconds"].get<double>()));
  }
  ordered_json json = demo.json(options.plugin.use ? "plugin" : "reducers");
  json["weights_identical"] = identical;
  json["ranks_per_host"] = bench::ranks_per_host_json(worker);
  json["reducers"] = reducers;
  json["allreduces"] = operations;
  json["bytes_reduced"] = own_bytes * worker.ranks;
  json["wire_bytes_sent"] = stats.wire_bytes_out;
  json["wire_bytes_received"] = stats.wire_bytes_in;
  json["allreduce_seconds"] = seconds(allreduce_time);
  json["gb_per_second"] = rate;
  json["reducer_shares"] = shares;
  demo.write_json(json);
  return identical && demo.is_accurate() ? bench::kExitOk : bench::kExitCheckFailed;
}

}  // namespace sluice::demo
