// `sluice top`: a pool in a terminal, second by second.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <thread>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/pool_status.h"
#include "cli/commands.h"
#include "cli/option_set.h"
#include "cli/pool_flags.h"
#include "cli/top_view.h"
#include "config/pool.h"
#include "core/clock.h"

namespace sluice::cli {
namespace {

constexpr size_t kAskedAtOnce = 32;

struct TopFlags {
  PoolFlags pool{.timeout = 2 * kSecond};
  Nanos interval = 1 * kSecond;
  bool once = false;
};

TopSample::Reducer ask(const config::Endpoint& reducer, const bench::Credentials& credentials,
                       Nanos timeout) {
  TopSample::Reducer r{.name = config::to_string(reducer)};
  const auto answer = bench::query_status(reducer, credentials, timeout);
  r.at = monotonic_now();
  if (!answer) {
    r.error = answer.error().text;
    return r;
  }
  r.status = nlohmann::json::parse(*answer, nullptr, false);
  if (!r.status.is_object()) {
    r.status = nullptr;
    r.error = "its status can't be read";
  }
  return r;
}

// All at a time, so that one that is gone does not make the others' figures old.
TopSample sample(const std::vector<config::Endpoint>& pool, const bench::Credentials& credentials,
                 Nanos timeout) {
  TopSample all;
  for (size_t first = 0; first < pool.size(); first += kAskedAtOnce) {
    std::vector<std::future<TopSample::Reducer>> asked;
    for (size_t i = first; i < std::min(pool.size(), first + kAskedAtOnce); ++i) {
      asked.push_back(std::async(std::launch::async, [&pool, &credentials, timeout, i] {
        return ask(pool[i], credentials, timeout);
      }));
    }
    for (auto& answer : asked) all.reducers.push_back(answer.get());
  }
  return all;
}

struct Screen {
  bool terminal = false;
  size_t columns = 400, lines = SIZE_MAX;
};

Screen screen() {
  Screen s{.terminal = isatty(STDOUT_FILENO) == 1};
  winsize size{};
  if (s.terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 1) {
    s.columns = size.ws_col;
    s.lines = size.ws_row - 1u;  // the cursor's
  }
  return s;
}

bool all_answer(const TopSample& s) {
  return std::ranges::all_of(s.reducers, [](const auto& r) { return r.status.is_object(); });
}

int run_top(const TopFlags& flags) {
  if (flags.interval < 100 * kMillisecond)
    throw bench::Failure(bench::kExitUsage, "--interval is at least 100ms");
  const bench::Credentials credentials = flags.pool.credentials();
  auto pool = bench::value_or_fail(config::read_reducers(flags.pool.reducers), bench::kExitUsage);
  TopSample before = sample(pool, credentials, flags.pool.timeout);
  for (Nanos next = monotonic_now();;) {
    next = std::max(next + flags.interval, monotonic_now());
    std::this_thread::sleep_for(std::chrono::nanoseconds(next - monotonic_now()));
    // A file may change; while it can't be read, what it said holds.
    if (auto again = config::read_reducers(flags.pool.reducers)) pool = std::move(*again);
    TopSample now = sample(pool, credentials, flags.pool.timeout);
    const Screen s = screen();
    const std::string text = top_text(before, now, s.columns, s.lines);
    if (s.terminal && !flags.once) std::fputs("\033[H\033[2J", stdout);
    std::fputs(text.c_str(), stdout);
    if (flags.once) return all_answer(now) ? bench::kExitOk : bench::kExitUnavailable;
    if (!s.terminal) std::fputs("\n", stdout);
    if (std::fflush(stdout) != 0) return bench::kExitFailure;  // nobody reads it any more
    before = std::move(now);
  }
}

}  // namespace

void add_top_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "top", "watch a pool: throughput, sessions, and the ranks that the others wait for");
  app->footer(
      "Ends by Ctrl-C. Not on a terminal it prints one sample after the other.\n"
      "WAITS: for how long and for which ranks, now. SLOWEST: of the last interval, the part in which the "
      "session waited for that rank; in brackets, in all.\n"
      "With --once, exit 69: a reducer does not answer.");
  auto flags = std::make_shared<TopFlags>();
  OptionSet set(*app);
  flags->pool.add_to(set);
  set.duration("--interval", flags->interval, "between two samples");
  set.flag("--once", flags->once, "one sample, of one interval");
  app->callback([flags, &chosen] { chosen = [flags] { return run_top(*flags); }; });
}

}  // namespace sluice::cli
