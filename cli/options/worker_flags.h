// Declares the options of every command that trains or measures with workers: the reducers, this worker's
// rank and, for the launcher, the processes to start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/process/launcher.h"
#include "bench/e2e/worker/worker_session.h"
#include "cli/options/credential_flags.h"
#include "cli/options/option_set.h"

namespace sluice::cli {

class WorkerFlags {
 public:
  // The arguments are the defaults of --workers, --reducers and --threads.
  explicit WorkerFlags(uint32_t workers, const char* reducers = "2", uint32_t threads = 1)
      : workers_(workers), reducers_(reducers), threads_(threads) {}

  // Adds the options. `set` and this object must outlive the parse.
  void add_to(OptionSet& set);

  // True when this process is one worker (--rank was given); otherwise it is the launcher.
  [[nodiscard]] bool is_worker() const noexcept { return rank_ >= 0; }
  [[nodiscard]] uint32_t workers() const noexcept { return workers_; }
  // These throw Failure: kExitUsage for missing or contradictory options, kExitConfig when the key or the
  // token cannot be read.
  [[nodiscard]] bench::WorkerOptions worker() const;
  // The same for a launcher that connects to running reducers, without session and rank.
  [[nodiscard]] bench::WorkerOptions client() const;
  [[nodiscard]] bench::LaunchOptions launch(const std::vector<std::string>& arguments) const;
  // Throws Failure(kExitUsage) when the run has no dedicated reducer, which `command` needs.
  void require_reducers(const char* command) const;
  // Throws Failure(kExitUsage) when workers share a host, which `feature` does not support for the `reason`.
  void require_own_hosts(const char* feature, const char* reason) const;

 private:
  void check() const;
  // Returns the list of --connect, or of --reducers when that is not a number. Empty: this command starts the
  // reducers.
  [[nodiscard]] std::string pool_list() const;
  [[nodiscard]] uint32_t reducer_count() const;

  uint32_t workers_;
  std::string reducers_;
  uint32_t ranks_per_host_ = 1;  // 0: hosts are found
  int64_t rank_ = -1;
  std::string connect_;
  std::string session_;
  CredentialFlags credentials_;
  std::string transport_;  // empty: SLUICE_TRANSPORT decides
  uint32_t lanes_ = 0;
  uint64_t window_ = 2 * kMiB;
  uint64_t slot_ = 0;
  uint32_t threads_;
  bool no_crc_ = false;
  bool no_keep_ = false;
  Nanos connect_timeout_ = 10 * kSecond;
  Nanos join_timeout_ = 60 * kSecond;
  std::string interface_;
  Nanos timeout_ = 0;
  std::string trace_;     // empty: SLUICE_TRACE decides
  std::string bits_;      // empty: SLUICE_BITS decides
  std::string blackbox_;  // empty: SLUICE_BLACKBOX decides
};

}  // namespace sluice::cli
