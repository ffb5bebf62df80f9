#include "cli/worker_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "bench/e2e/exit_codes.h"
#include "config/pool.h"
#include "config/secret_file.h"

namespace sluice::cli {

using bench::Failure;

void WorkerFlags::add_to(OptionSet& set) {
  set.group("Workers and reducers");
  set.number("--workers", workers_, "workers in all");
  set.text("--reducers", reducers_, "N|LIST",
           "reducers to start on loopback, or running ones: host:port,host:port*2,... or @FILE");
  set.text("--connect", connect_, "LIST",
           "use these running reducers, whatever --reducers says; same order for all workers. @FILE: one a "
           "line in a file, "
           "which is read again when it changes and at SIGHUP");
  set.number("--rank", rank_,
             "be this one worker of a run on several hosts (0..workers-1) instead of starting all")
      ->default_str("")
      ->type_name("INT");
  set.text("--session", session_, "HEX",
           "32 hex digits, the same for all workers of a run; needed with --rank");
  set.duration("--timeout", timeout_, "most that a launched run may take; 0: no limit");
  set.group("Session");
  set.text("--job", job_, "NAME", "job that the token is for");
  set.text("--tenant", tenant_, "NAME",
           "whose share and memory of the reducers this counts for; default: the job's name");
  set.text("--key-file", key_file_, "FILE", "pool key, or ...");
  set.text("--token-file", token_file_, "FILE", "... the token of --job");
  set.text("--tls", tls_, "MODE",
           "off; on: where the reducer offers it; require. Reducers started here take it too; by the key, or "
           "variables (docs/security.md)")
      ->check(CLI::IsMember({"off", "on", "require"}));
  set.text("--transport", transport_, "HOW",
           "what lanes go over: auto, RDMA where both ends have it; tcp; rdma alone. Reducers started here "
           "take it too")
      ->check(CLI::IsMember({"auto", "tcp", "rdma"}));
  set.number(
      "--lanes", lanes_,
      "connections per worker and reducer, and lane threads of a reducer started here; 0: its default");
  set.size("--window", window_, "bytes in flight per worker and reducer");
  set.size("--slot", slot_, "largest chunk; 0: 16K to 128K, by workers and connections");
  set.number("--threads", threads_,
             "progress threads of each worker: 1, or 0 for progress by the caller's waiting")
      ->check(CLI::IsMember({0, 1}));
  set.flag("--no-crc", no_crc_, "no checksum on payloads, neither way");
  set.flag("--no-keep", no_keep_, "results are received in place and not kept for other workers");
  set.duration("--connect-timeout", connect_timeout_, "to reach one reducer");
  set.duration("--join-timeout", join_timeout_, "for all workers to arrive");
  set.text("--interface", interface_, "ADDRESS", "local address to connect from");
}

void WorkerFlags::check() const {
  if (workers_ == 0) throw Failure(bench::kExitUsage, "there must be a worker");
  if (!key_file_.empty() && !token_file_.empty()) {
    throw Failure(bench::kExitUsage, "--key-file and --token-file are one too many");
  }
  // What the library, the workers and the reducers of this run read.
  if (!tls_.empty()) ::setenv("SLUICE_TLS", tls_.c_str(), 1);
  if (!transport_.empty()) ::setenv("SLUICE_TRANSPORT", transport_.c_str(), 1);
  if (const std::string list = pool_list(); !list.empty())
    (void)bench::value_or_fail(config::read_reducers(list), bench::kExitUsage);
  for (const std::string& path : {key_file_, token_file_}) {
    if (!path.empty()) (void)bench::value_or_fail(config::read_secret_file(path), bench::kExitConfig);
  }
}

std::string WorkerFlags::pool_list() const {
  if (!connect_.empty()) return connect_;
  const bool is_number = reducers_.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::string() : reducers_;
}

uint32_t WorkerFlags::reducer_count() const {
  uint32_t count = 0;
  const auto [end, error] = std::from_chars(reducers_.data(), reducers_.data() + reducers_.size(), count);
  if (error != std::errc{} || end != reducers_.data() + reducers_.size() || count == 0 ||
      count > config::kMaxEndpoints) {
    throw Failure(bench::kExitUsage,
                  fmt::format("--reducers {}: there must be 1 to {}", reducers_, config::kMaxEndpoints));
  }
  return count;
}

bench::WorkerOptions WorkerFlags::worker() const {
  check();
  if (pool_list().empty() || session_.empty())
    throw Failure(bench::kExitUsage, "--rank needs --connect and --session");
  if (rank_ >= workers_)
    throw Failure(bench::kExitUsage, fmt::format("rank {} is not below the {} workers", rank_, workers_));
  return {.reducers = pool_list(),
          .session = session_,
          .rank = static_cast<uint32_t>(rank_),
          .ranks = workers_,
          .job = job_,
          .tenant = tenant_,
          .key_file = key_file_,
          .token_file = token_file_,
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
  if (list.empty() && !token_file_.empty()) {
    throw Failure(bench::kExitUsage,
                  "reducers started here need the pool's key: --key-file instead of --token-file");
  }
  return {.arguments = arguments,
          .workers = workers_,
          .connect = list,
          .pool = {.reducers = count, .lanes = lanes_, .payload_crc = !no_crc_, .key_file = key_file_},
          .session = session_,
          .deadline = timeout_};
}

}  // namespace sluice::cli
