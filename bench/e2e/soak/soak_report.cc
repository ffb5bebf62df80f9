#include "bench/e2e/soak/soak_report.h"

#include <fmt/format.h>

#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "config/json.h"
#include "config/sizes.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

double soak_seconds(Nanos t) {
  return 1e-9 * static_cast<double>(t);
}
double mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / kMiB;
}

ordered_json progress_json(const SoakProgress& p) {
  return {{"seconds", soak_seconds(p.elapsed)},
          {"operations", p.operations},
          {"bytes", p.bytes},
          {"nwrong", p.wrong},
          {"time_count", p.times.count},
          {"p50_ms", p.times.median * 1e3},
          {"p99_ms", p.times.p99 * 1e3},
          {"p999_ms", p.times.p999 * 1e3},
          {"longest_round_ms", soak_seconds(p.longest_round) * 1e3},
          {"rss_bytes", p.resident}};
}

}  // namespace

SoakReport::SoakReport(const SoakOptions& options, const WorkerOptions& worker, std::vector<RankInfo> ranks,
                       uint64_t seed)
    : options_(options), worker_(worker), ranks_(std::move(ranks)), seed_(seed) {
  if (worker.rank != 0) return;
  machine_ = machine_facts(worker.reducers, worker.interface_address);
  print_flushed(
      text_of(machine_) +
      fmt::format("# sluice bench soak: seed {}, {}, {}, reducers {}\n"
                  "# 1 to {} concurrent operations with random types, operators and sizes up to {}, every "
                  "result checked\n"
                  "# ops and GB: total per rank; ms: time of an operation since the previous line, on rank "
                  "0; RSS: of "
                  "rank 0\n"
                  "# seconds         ops          GB      p50 ms      p99 ms  #wrong     RSS MiB\n",
                  seed, options.duration == 0 ? "until interrupted" : config::duration_text(options.duration),
                  workers_text(worker), worker.reducers, options.open, config::size_text(options.max_bytes)));
}

void SoakReport::add(const SoakProgress& p) {
  if (worker_.rank != 0) return;
  lines_.push_back(p);
  print_flushed(fmt::format("{:>9.1f}  {:>10}  {:>10.3f}  {:>10.3f}  {:>10.3f}  {:>6}  {:>10.1f}\n",
                            soak_seconds(p.elapsed), p.operations, 1e-9 * static_cast<double>(p.bytes),
                            p.times.median * 1e3, p.times.p99 * 1e3, p.wrong, mebibytes(p.resident)));
}

int SoakReport::finish(const SoakSummary& summary) const {
  const SoakProgress& total = summary.total;
  const bool grew = options_.max_growth != 0 && summary.most_growth > options_.max_growth;
  if (worker_.rank == 0) {
    const auto line = [](const char* name, const std::string& value) {
      return fmt::format("# {:<20} : {}\n", name, value);
    };
    const char* verdict = options_.max_growth == 0 ? "" : grew ? " FAILED" : " OK";
    print_flushed(
        line(summary.interrupted ? "Interrupted after" : "Ended after",
             fmt::format("{:.1f} s, seed {}", soak_seconds(total.elapsed), seed_)) +
        line("Operations", fmt::format("{}, {:.3f} GB, per rank", total.operations,
                                       1e-9 * static_cast<double>(total.bytes))) +
        line("Operation time", fmt::format("p50 {:.3f} ms, p99 {:.3f} ms, p99.9 {:.3f} ms, {} samples",
                                           total.times.median * 1e3, total.times.p99 * 1e3,
                                           total.times.p999 * 1e3, total.times.count)) +
        line("RSS", fmt::format("{:.1f} MiB after the first tenth, {:.1f} MiB at the end; maximum growth of "
                                "a rank {:.1f} MiB{}",
                                mebibytes(summary.resident_early), mebibytes(total.resident),
                                mebibytes(summary.most_growth), verdict)) +
        line("Out of bounds values", fmt::format("{} {}", total.wrong, total.wrong == 0 ? "OK" : "FAILED")));
    if (!options_.json.empty()) write_json(summary);
    if (!options_.csv.empty()) write_csv();
  }
  return total.wrong != 0 || grew ? kExitCheckFailed : kExitOk;
}

void SoakReport::write_json(const SoakSummary& summary) const {
  ordered_json json = {{"schema", "sluice.bench.soak/1"}, {"machine", to_json(machine_)}};
  json["config"] = {{"workers", worker_.ranks},
                    {"ranks_per_host", ranks_per_host_json(worker_)},
                    {"reducers", worker_.reducers},
                    {"hosts", ordered_json::array()},
                    {"duration_seconds", soak_seconds(options_.duration)},
                    {"seed", seed_},
                    {"max_bytes", options_.max_bytes},
                    {"open", options_.open},
                    {"progress_threads", worker_.progress_threads},
                    {"payload_crc", worker_.payload_crc}};
  for (const RankInfo& info : ranks_) json["config"]["hosts"].push_back(info.host);
  json["results"] = ordered_json::array();
  for (const SoakProgress& line : lines_) json["results"].push_back(progress_json(line));
  json["total"] = progress_json(summary.total);
  json["interrupted"] = summary.interrupted;
  json["rss_after_first_tenth_bytes"] = summary.resident_early;
  json["rss_most_growth_bytes"] = summary.most_growth;
  json["nwrong"] = summary.total.wrong;
  write_result_file(options_.json, config::json_text(json, 2) + "\n");
}

void SoakReport::write_csv() const {
  std::string text = "seconds,operations,bytes,wrong,p50_ms,p99_ms,rss_bytes\n";
  for (const SoakProgress& p : lines_) {
    text += fmt::format("{},{},{},{},{},{},{}\n", soak_seconds(p.elapsed), p.operations, p.bytes, p.wrong,
                        p.times.median * 1e3, p.times.p99 * 1e3, p.resident);
  }
  write_result_file(options_.csv, text);
}

}  // namespace sluice::bench
