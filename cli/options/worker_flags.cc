#include "cli/options/worker_flags.h"

#include <fmt/format.h>

#include <cstdlib>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/worker/rank_info.h"
#include "cli/options/pool_flags.h"
#include "config/pool.h"
#include "core/parse_number.h"

namespace sluice::cli {
namespace {

bool is_number(const std::string& reducers) {
  return reducers.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

using bench::Failure;

void WorkerFlags::add_to(OptionSet& set) {
  set.group("Workers and reducers");
  set.number("--workers", workers_, "number of workers");
  set.text(
      "--reducers", reducers_, "N|LIST",
      "number of reducers to start on loopback (0: the workers reduce by themselves), or running reducers: "
      "host:port,host:port*2,... or @FILE",
      [](const std::string& value) { return is_number(value) ? std::string() : check_reducer_list(value); });
  set.text("--connect", connect_, "LIST",
           "use these running reducers instead of --reducers, in the same order for all workers. @FILE: one "
           "address per line, read again on SIGHUP and when the file changes. none: no dedicated reducers; "
           "SLUICE_RENDEZVOUS names the host of rank 0",
           check_reducer_list);
  set.number("--ranks-per-host", ranks_per_host_,
             "divide the workers into hosts of this many ranks, which send their sum once (sets "
             "SLUICE_HOST_ID and SLUICE_HOSTS); 1: each worker is a host; 0: hosts are found, as in a job");
  set.number("--rank", rank_,
             "run this one worker of a run on several hosts (0..workers-1) instead of starting all workers")
      ->default_str("")
      ->type_name("INT");
  set.text("--session", session_, "HEX",
           "session id, 32 hex digits, the same for all workers of a run; required with --rank");
  set.duration("--timeout", timeout_, "time limit of a launched run; 0: no limit");
  set.group("Session");
  credentials_.add_to(set);
  set.text("--transport", transport_, "TRANSPORT",
           "transport of lane connections. auto: RDMA if both ends support it, otherwise TCP. Also applies "
           "to reducers started by this command")
      ->check(CLI::IsMember({"auto", "tcp", "rdma"}));
  set.number("--lanes", lanes_,
             "connections per worker and reducer, and lane threads of a reducer started by this command; 0: "
             "the reducer's default");
  set.size("--window", window_, "bytes in flight per worker and reducer");
  set.size("--slot", slot_, "largest chunk; 0: 16K to 128K, depending on workers and connections");
  set.number("--threads", threads_,
             "progress threads per worker. 1: a thread; 0: progress while the caller waits")
      ->check(CLI::IsMember({0, 1}));
  set.flag("--no-crc", no_crc_, "send payloads without a checksum, in both directions");
  set.flag("--no-keep", no_keep_, "receive results in place and do not keep them for other workers");
  set.duration("--connect-timeout", connect_timeout_, "time limit for connecting to one reducer");
  set.duration("--join-timeout", join_timeout_, "time limit for all workers to join");
  // --trace is an option of `bench replay` with another meaning.
  set.variable("SLUICE_TRACE")
      .text("--trace-file", trace_, "FILE",
            "write a trace of each worker for Perfetto and `sluice trace summary`. The name gets the session "
            "and the rank: FILE-SESSION-rankN.json (docs/guides/trace.md)");
  set.variable("SLUICE_BITS")
      .text(
          "--bits-file", bits_, "FILE",
          "record a hash of each result of each worker for `sluice bits`. The name gets the session and the "
          "rank: FILE-SESSION-rankN.bits (docs/guides/verify-bits.md)");
  set.text("--blackbox", blackbox_, "PATH",
           "folder or file name for the last events of each process, which are written when a session fails "
           "or on SIGUSR2 (docs/guides/blackbox.md)");
  set.text("--interface", interface_, "ADDRESS", "local address to connect from");
}

void WorkerFlags::check() const {
  if (workers_ == 0) throw Failure(bench::kExitUsage, "--workers must be at least 1");
  // The library, the workers and the reducers of this run read these variables.
  if (!transport_.empty()) ::setenv("SLUICE_TRANSPORT", transport_.c_str(), 1);
  if (!trace_.empty()) ::setenv("SLUICE_TRACE", trace_.c_str(), 1);
  if (!bits_.empty()) ::setenv("SLUICE_BITS", bits_.c_str(), 1);
  if (!blackbox_.empty()) ::setenv("SLUICE_BLACKBOX", blackbox_.c_str(), 1);
  if (const std::string list = pool_list(); !list.empty())
    (void)bench::value_or_fail(config::read_reducers(list), bench::kExitUsage);
  (void)credentials_.identity();
}

std::string WorkerFlags::pool_list() const {
  if (!connect_.empty()) return connect_;
  return is_number(reducers_) ? std::string() : reducers_;
}

uint32_t WorkerFlags::reducer_count() const {
  const auto count = parse_number<uint32_t>(reducers_);
  if (!count || *count > config::kMaxEndpoints) {
    throw Failure(bench::kExitUsage,
                  fmt::format("--reducers {}: must be 0 to {}", reducers_, config::kMaxEndpoints));
  }
  return *count;
}

void WorkerFlags::require_reducers(const char* command) const {
  const std::string list = pool_list();
  if (list == config::kNoReducers || (list.empty() && reducer_count() == 0))
    throw Failure(bench::kExitUsage,
                  fmt::format("{} needs at least one dedicated reducer (--reducers)", command));
}

void WorkerFlags::require_own_hosts(const char* feature, const char* reason) const {
  if (ranks_per_host_ > 1) {
    throw Failure(bench::kExitUsage,
                  fmt::format("--ranks-per-host {}: {} expects one worker on each host, because {}",
                              ranks_per_host_, feature, reason));
  }
}

bench::WorkerOptions WorkerFlags::worker() const {
  bench::WorkerOptions options = client();
  if (pool_list().empty() || session_.empty())
    throw Failure(bench::kExitUsage, "--rank requires --connect and --session");
  if (rank_ >= workers_)
    throw Failure(bench::kExitUsage,
                  fmt::format("--rank {}: must be less than --workers {}", rank_, workers_));
  options.session = session_;
  options.rank = static_cast<uint32_t>(rank_);
  options.ranks = workers_;
  options.ranks_per_host = ranks_per_host_;
  if (ranks_per_host_ != 0) bench::join_host(options.rank, ranks_per_host_);
  return options;
}

bench::WorkerOptions WorkerFlags::client() const {
  check();
  return {.reducers = pool_list(),
          .session = {},
          .lanes = lanes_,
          .window_bytes = window_,
          .slot_bytes = slot_,
          .progress_threads = threads_,
          .payload_crc = !no_crc_,
          .keep_results = !no_keep_,
          .connect_timeout_ms = connect_timeout_ / kMillisecond,
          .join_timeout_ms = join_timeout_ / kMillisecond,
          .interface_address = interface_};
}

bench::LaunchOptions WorkerFlags::launch(const std::vector<std::string>& arguments) const {
  check();
  const std::string list = pool_list();
  const uint32_t count = list.empty() ? reducer_count() : 0;
  const char* const token_file = std::getenv("SLUICE_TOKEN_FILE");  // check() has exported --token-file
  if (list.empty() && token_file != nullptr && *token_file != 0) {
    throw Failure(
        bench::kExitUsage,
        "reducers started by this command need the pool key; use --key-file instead of --token-file");
  }
  return {.arguments = arguments,
          .workers = workers_,
          .connect = list,
          .pool = {.reducers = count, .lanes = lanes_, .payload_crc = !no_crc_},
          .session = session_,
          .deadline = timeout_};
}

}  // namespace sluice::cli
