// Implements `sluice check pool` and `sluice wait`: whether a pool is ready for jobs, and for the next step
// of a rolling restart.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/pool/pool_check.h"
#include "cli/commands/pool/pool_commands.h"
#include "cli/options/option_set.h"
#include "cli/options/pool_flags.h"
#include "config/pool.h"
#include "core/clock.h"

namespace sluice::cli {
namespace {

using bench::Failure;

constexpr Nanos kPollInterval = 500 * kMillisecond;
constexpr Nanos kAnswerTimeout = 5 * kSecond;

std::string lines_of(const PoolCheck& check) {
  std::string out;
  for (const auto* lines : {&check.reducers, &check.notes}) {
    for (const std::string& line : *lines) out += line + "\n";
  }
  return out;
}

int run_check_pool(const PoolFlags& flags) {
  const auto pool = bench::value_or_fail(config::read_reducers(flags.reducers), bench::kExitUsage);
  const PoolCheck check = check_pool(query_pool(pool, flags.credentials.identity(), flags.timeout));
  std::string text = lines_of(check);
  for (const std::string& problem : check.problems) {
    if (std::ranges::find(check.reducers, problem) == check.reducers.end()) text += problem + "\n";
  }
  bench::print_result(text);
  if (check.problems.empty()) return bench::kExitOk;
  throw Failure(bench::kExitUnavailable, fmt::format("the pool is not ready: {} problems, the first: {}",
                                                     check.problems.size(), check.problems.front()));
}

int run_wait(const PoolFlags& flags) {
  const auto pool = bench::value_or_fail(config::read_reducers(flags.reducers), bench::kExitUsage);
  const engine::Identity identity = flags.credentials.identity();
  const Nanos deadline = monotonic_now() + flags.timeout;
  for (;;) {
    const PoolCheck check =
        check_pool(query_pool(pool, identity, std::clamp(flags.timeout, kPollInterval, kAnswerTimeout)));
    if (check.problems.empty()) {
      bench::print_result(lines_of(check));
      return bench::kExitOk;
    }
    if (monotonic_now() + kPollInterval > deadline)
      throw Failure(bench::kExitUnavailable,
                    fmt::format("not ready within {}: {}", config::duration_text(flags.timeout),
                                fmt::join(check.problems, "; ")));
    std::this_thread::sleep_for(std::chrono::nanoseconds(kPollInterval));
  }
}

}  // namespace

void add_check_pool_command(CLI::App& check, Command& chosen) {
  CLI::App* app = check.add_subcommand(
      "pool",
      "check that all reducers of a pool accept sessions and that running sessions are on all of them");
  app->footer(
      "Exit 0: any one reducer can be drained: fault-tolerant sessions go on without it, others have its "
      "--drain-timeout to end. A pool without sessions is ready too. 69: not now, with the reasons.");
  auto flags = std::make_shared<PoolFlags>();
  OptionSet set(*app);
  flags->add_to(set);
  run_when_selected(*app, chosen, flags, run_check_pool);
}

void add_wait_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand("wait", "wait until `sluice check pool` succeeds");
  app->footer("Exit 0: ready. 69: not within --timeout, with the reasons.");
  auto flags = std::make_shared<PoolFlags>();
  flags->timeout = 120 * kSecond;
  app->add_option(
         "--ready", flags->reducers,
         "reducers that must be ready: host:port,host:port,... or @FILE; for a rolling restart all of "
         "the pool")
      ->type_name("LIST")
      ->required();
  OptionSet set(*app);
  flags->credentials.add_to(set);
  set.duration("--timeout", flags->timeout, "time limit");
  run_when_selected(*app, chosen, flags, run_wait);
}

}  // namespace sluice::cli
