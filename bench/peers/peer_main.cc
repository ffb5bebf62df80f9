#include "bench/peers/peer_main.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <numeric>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/report/quantiles.h"
#include "bench/peers/peer_bench.h"
#include "config/json.h"
#include "config/sizes.h"

namespace sluice::bench {
namespace {

constexpr const char* kSchema = "sluice.bench.peer/1";

const std::map<std::string, Collective> kCollectives = {{"allreduce", Collective::kAllreduce},
                                                        {"reduce_scatter", Collective::kReduceScatter},
                                                        {"all_gather", Collective::kAllGather},
                                                        {"both", Collective::kBoth}};

// Class PeerFlags defines the command line options that all drivers share.
class PeerFlags {
 public:
  void add_to(CLI::App& app) {
    app.add_option(
           "--bytes", bytes_,
           "sizes of the operations, of all ranks' parts together, for example 64K,4M (powers of 1024)")
        ->delimiter(',');
    app.add_option("--collective", collective_,
                   "operation; both: a reduce-scatter and an all-gather at once. A trace has allreduces")
        ->capture_default_str()
        ->check(CLI::IsMember(kCollectives));
    app.add_option("--interface", options_.interface,
                   "network interface of this host whose sent bytes are counted");
    app.add_option("--trace", trace_,
                   "file with lines \"<ready_us> <bytes>\", # for comments; an iteration runs the allreduces "
                   "in order, each at the given time after its start or later");
    app.add_option("--iterations", options_.iterations,
                   "timed operations per size, or iterations of the trace")
        ->capture_default_str()
        ->check(CLI::Range(1, 1'000'000));
    app.add_option(
           "--warmup", options_.warmup,
           "untimed operations or iterations before them; without a trace more, until they last 0.1 s")
        ->capture_default_str();
    app.add_option(
           "--computing", options_.computing_share,
           "measure beside a thread that computes on each core, with pauses: the share of the time that "
           "the operations take up when none computes")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--json", options_.json, "file for the results, written by rank 0");
    app.add_option("--spoil-rank", options_.spoil_rank,
                   "rank that contributes one wrong element, to prove that the check detects it");
  }

  // Throws Failure(kExitUsage) for invalid options and for an unreadable trace.
  [[nodiscard]] PeerOptions options() const {
    PeerOptions options = options_;
    options.collective = kCollectives.at(collective_);
    if (!trace_.empty() && options.collective != Collective::kAllreduce)
      throw Failure(kExitUsage, "--collective has no effect with --trace");
    if (bytes_.empty() == trace_.empty()) throw Failure(kExitUsage, "expected either --bytes or --trace");
    for (const std::string& text : bytes_) {
      const uint64_t bytes = value_or_fail(config::parse_size(text), kExitUsage);
      if (bytes == 0 || bytes % sizeof(float) != 0)
        throw Failure(kExitUsage,
                      fmt::format("--bytes {}: expected a positive multiple of 4 B, the size of f32", text));
      options.bytes.push_back(bytes);
    }
    if (!trace_.empty()) options.trace = value_or_fail(read_trace(trace_, sizeof(float)), kExitUsage);
    return options;
  }

 private:
  std::vector<std::string> bytes_;
  std::string collective_ = "allreduce";
  std::string trace_;
  PeerOptions options_;
};

const std::string& name_of(Collective collective) {
  return std::find_if(kCollectives.begin(), kCollectives.end(),
                      [&](const auto& c) { return c.second == collective; })
      ->first;
}

// Class PeerReport prints the table of a driver on rank 0 and writes the JSON file. With a trace it has one
// row.
class PeerReport {
 public:
  PeerReport(const Peer& peer, const PeerOptions& options) : peer_(peer), options_(options) {}

  void add(const PeerResult& r) {
    if (results_.empty()) {
      const std::string algorithm = peer_.algorithm();
      fmt::print("# {}, {}, {} of f32, {} ranks; times of the slowest rank\n", peer_.library(),
                 algorithm.empty() ? "default algorithm" : "algorithm " + algorithm,
                 name_of(options_.collective), peer_.ranks());
      fmt::print("{:>12} {:>6} {:>12} {:>12} {:>13} {:>13} {:>7}\n", "bytes", "runs", "median ms", "p99 ms",
                 "algbw GB/s", "CPU s per GB", "#wrong");
    }
    results_.push_back(r);
    const Quantiles times = quantiles_of(r.operation_seconds);
    fmt::print("{:>12} {:>6} {:>12.4f} {:>12.4f} {:>13.4f} {:>13.3f} {:>7}\n",
               options_.trace ? "trace" : std::to_string(r.bytes), times.count, 1e3 * times.median,
               1e3 * times.p99, 1e-9 * static_cast<double>(r.bytes) / times.median, cpu_per_gb(r), r.wrong);
    std::fflush(stdout);
  }

  // Writes the JSON file. Returns kExitOk or kExitCheckFailed.
  [[nodiscard]] int finish() const {
    nlohmann::ordered_json json = {{"schema", kSchema},
                                   {"machine", to_json(machine_facts(""))},
                                   {"library", peer_.library()},
                                   {"algorithm", peer_.algorithm()},
                                   {"collective", name_of(options_.collective)},
                                   {"ranks", peer_.ranks()},
                                   {"type", "f32"},
                                   {"op", "sum"},
                                   {"iterations", options_.iterations},
                                   {"warmup", options_.warmup}};
    json["results"] = nlohmann::ordered_json::array();
    uint64_t wrong = 0;
    for (const PeerResult& r : results_) {
      nlohmann::ordered_json result = {{"bytes", r.bytes}};
      if (options_.trace) result["operations"] = options_.trace->buckets.size();
      result["operation_seconds"] = r.operation_seconds;
      if (options_.trace) {
        result["allreduce_seconds"] = r.loop_seconds;
      } else {
        result["loop_seconds"] = r.loop_seconds.front();
      }
      result["cpu_seconds"] = r.cpu_seconds;
      result["cpu_seconds_per_gb"] = cpu_per_gb(r);
      if (!options_.interface.empty()) result["sent_bytes"] = r.sent_bytes;
      if (r.computing) result["computing"] = computing_json(*r.computing);
      result["wrong"] = r.wrong;
      json["results"].push_back(std::move(result));
      wrong += r.wrong;
    }
    if (!options_.json.empty()) write_result_file(options_.json, config::json_text(json, 1) + "\n");
    return wrong == 0 ? kExitOk : kExitCheckFailed;
  }

 private:
  [[nodiscard]] static nlohmann::ordered_json computing_json(const ComputingResult& c) {
    return {{"period_seconds", c.period_seconds},
            {"loss", c.loss},
            {"sums", c.sums},
            {"sums_beside", c.sums_beside},
            {"beside_seconds", c.beside_seconds}};
  }
  // Returns CPU seconds of all ranks per 1e9 bytes contributed.
  [[nodiscard]] double cpu_per_gb(const PeerResult& r) const {
    const double sum = std::accumulate(r.cpu_seconds.begin(), r.cpu_seconds.end(), 0.0);
    return sum / (static_cast<double>(r.bytes) * static_cast<double>(r.operation_seconds.size()) *
                  peer_.ranks() * 1e-9);
  }

  const Peer& peer_;
  const PeerOptions& options_;
  std::vector<PeerResult> results_;
};

// The parts of a reduce-scatter or all-gather are equal.
void check_parts(const Peer& peer, const PeerOptions& options) {
  if (options.collective == Collective::kAllreduce) return;
  for (const uint64_t bytes : options.bytes) {
    if (bytes % (sizeof(float) * peer.ranks()) != 0) {
      throw Failure(kExitUsage,
                    fmt::format("--bytes {}: expected a multiple of {} B, a float for each of {} ranks",
                                bytes, sizeof(float) * peer.ranks(), peer.ranks()));
    }
  }
}

int run(Peer& peer, const PeerOptions& options) {
  check_parts(peer, options);
  PeerBench bench(peer, options);
  PeerReport report(peer, options);
  const bool is_rank_zero = peer.rank() == 0;
  for (const uint64_t bytes : options.bytes) {
    const PeerResult result =
        options.computing_share > 0 ? bench.measure_beside_computing(bytes) : bench.measure(bytes);
    if (is_rank_zero) report.add(result);
  }
  if (options.trace) {
    const PeerResult result = bench.replay(*options.trace);
    if (is_rank_zero) report.add(result);
  }
  const int code = is_rank_zero ? report.finish() : kExitOk;
  peer.shut_down(code);
  return code;
}

}  // namespace

int peer_main(int argc, char** argv, CLI::App& app, const std::function<std::unique_ptr<Peer>()>& join) {
  PeerFlags flags;
  flags.add_to(app);
  try {
    app.parse(argc, argv);
    const PeerOptions options = flags.options();
    return run(*join(), options);
  } catch (const CLI::Success& e) {  // --help
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "%s: %s (see --help)\n", app.get_name().c_str(), e.what());
    return kExitUsage;
  } catch (const Failure& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
    return e.code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
    return kExitFailure;
  }
}

}  // namespace sluice::bench
