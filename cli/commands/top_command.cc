// Implements `sluice top`: shows the status of a pool in a terminal, updated every second.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/commands/pool/pool_query.h"
#include "cli/commands/top_view.h"
#include "cli/options/option_set.h"
#include "cli/options/pool_flags.h"
#include "config/pool.h"
#include "core/clock.h"

namespace sluice::cli {
namespace {

struct TopFlags {
  PoolFlags pool{.timeout = 2 * kSecond};
  Nanos interval = 1 * kSecond;
  bool once = false;
};

struct Screen {
  bool is_terminal = false;
  size_t columns = 400, lines = SIZE_MAX;
};

Screen screen() {
  Screen s{.is_terminal = isatty(STDOUT_FILENO) == 1};
  winsize size{};
  if (s.is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 1) {
    s.columns = size.ws_col;
    s.lines = size.ws_row - 1u;  // one line for the cursor
  }
  return s;
}

bool all_answer(const TopSample& s) {
  return std::ranges::all_of(s.reducers, [](const auto& r) { return r.status.is_object(); });
}

int run_top(const TopFlags& flags) {
  if (flags.interval < 100 * kMillisecond)
    throw bench::Failure(bench::kExitUsage, "--interval must be at least 100ms");
  const engine::Identity identity = flags.pool.credentials.identity();
  auto pool = bench::value_or_fail(config::read_reducers(flags.pool.reducers), bench::kExitUsage);
  TopSample previous = query_pool(pool, identity, flags.pool.timeout);
  for (Nanos next = monotonic_now();;) {
    next = std::max(next + flags.interval, monotonic_now());
    std::this_thread::sleep_for(std::chrono::nanoseconds(next - monotonic_now()));
    // A pool file may change. While it cannot be read, the previous list stays in use.
    if (auto reducers = config::read_reducers(flags.pool.reducers)) pool = std::move(*reducers);
    TopSample current = query_pool(pool, identity, flags.pool.timeout);
    const Screen s = screen();
    const std::string text = top_text(previous, current, s.columns, s.lines);
    if (flags.once) {
      bench::print_result(text);
      return all_answer(current) ? bench::kExitOk : bench::kExitUnavailable;
    }
    bench::print_result(s.is_terminal ? "\033[H\033[2J" + text : text + "\n");
    previous = std::move(current);
  }
}

}  // namespace

void add_top_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "top", "monitor a pool: throughput, sessions, and the ranks that sessions wait for");
  app->footer(
      "Ctrl-C ends the program. Without a terminal it prints one sample after another.\n"
      "WAITS: how long a session has waited, and for which ranks. SLOWEST: the share of the last interval in "
      "which the session waited for the rank, and the total waiting time in parentheses.\n"
      "OTHER/s: answered pushes that no step contains. LAST STEP: time since.\n"
      "With --once, exit 69: a reducer does not answer.");
  auto flags = std::make_shared<TopFlags>();
  OptionSet set(*app);
  flags->pool.add_to(set);
  set.duration("--interval", flags->interval, "time between two samples");
  set.flag("--once", flags->once, "print one sample over one interval, then exit");
  run_when_selected(*app, chosen, flags, run_top);
}

}  // namespace sluice::cli
