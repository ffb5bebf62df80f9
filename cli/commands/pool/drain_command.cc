// Implements `sluice drain`: makes a running reducer drain, and waits until it has ended.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "bench/e2e/pool/pool_status.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/pool/pool_commands.h"
#include "cli/options/credential_flags.h"
#include "cli/options/option_set.h"
#include "config/endpoints.h"
#include "config/json.h"
#include "config/printable_text.h"
#include "core/clock.h"
#include "wire/handshake.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using bench::StatusAnswer;

constexpr Nanos kDrainPollInterval = 200 * kMillisecond;
constexpr Nanos kDrainAnswerTimeout = 5 * kSecond;

struct DrainFlags {
  std::string reducer;
  CredentialFlags credentials;
  Nanos timeout = 120 * kSecond;
};

struct DrainTarget {
  config::Endpoint address;
  std::string name;
  engine::Identity identity;
  Nanos deadline;
};

DrainTarget target_of(const DrainFlags& flags) {
  const auto list = bench::value_or_fail(config::parse_endpoints(flags.reducer), bench::kExitUsage);
  if (list.size() != 1)
    throw Failure(bench::kExitUsage,
                  "expected one reducer: its sessions need the others (sluice wait --ready)");
  DrainTarget target{.address = list.front(),
                     .name = engine::reducer_name(list.front()),
                     .identity = flags.credentials.identity(wire::kReducerJob),
                     .deadline = monotonic_now() + flags.timeout};
  if (const char* const token = std::getenv("SLUICE_TOKEN_FILE"); token != nullptr && *token != '\0')
    throw Failure(bench::kExitUsage,
                  "a drain needs the pool key (--key-file, SLUICE_KEY_FILE), a job token "
                  "(--token-file, SLUICE_TOKEN_FILE) is not enough");
  return target;
}

Result<StatusAnswer> ask(const DrainTarget& target, wire::Purpose purpose) {
  const Nanos left = std::max(target.deadline - monotonic_now(), kDrainPollInterval);
  return bench::request_status(target.address, target.identity, purpose, std::min(left, kDrainAnswerTimeout));
}

// Returns the answer of a reducer that drains from now on.
StatusAnswer start_drain(const DrainTarget& target) {
  auto answer = ask(target, wire::Purpose::kStatus);
  // Of the status: a reducer without a key refuses drains from other hosts with the same code.
  const bool lacks_key = !answer && answer.error().code == Errc::kUnauthenticated && !target.identity.token;
  if (answer && (answer->welcome.features & wire::kFeatureDrain) == 0)
    throw Failure(bench::kExitUnavailable,
                  fmt::format("{}: its version ({}) cannot be drained by a command; send SIGTERM on its host",
                              target.name, config::printable(answer->welcome.software)));
  if (answer) answer = ask(target, wire::Purpose::kDrain);
  if (answer) return std::move(*answer);
  throw Failure(bench::kExitUnavailable,
                answer.error().text + (lacks_key ? "; a drain needs the pool key, not a job token" : ""));
}

uint64_t sessions_of(const StatusAnswer& answer) {
  const auto status = config::parse_json(answer.json);
  return status.is_object() ? status.value("/sessions/open"_json_pointer, uint64_t{0}) +
                                  status.value("/sessions/ending"_json_pointer, uint64_t{0})
                            : 0;
}

int run_drain(const DrainFlags& flags) {
  const DrainTarget target = target_of(flags);
  const Nanos begin = monotonic_now();
  Result<StatusAnswer> answer = start_drain(target);
  const uint64_t process = answer->welcome.reducer;
  std::string state;
  for (;;) {
    // Nothing listens there any more, or another process does.
    if (answer ? answer->welcome.reducer != process : answer.error().code == Errc::kReset) {
      bench::print_result(fmt::format("{}: ended after {:.1f} s{}\n", target.name,
                                      1e-9 * static_cast<double>(monotonic_now() - begin),
                                      answer ? " and was started again" : ""));
      return bench::kExitOk;
    }
    std::string now = answer
                          ? fmt::format("{}: draining, {} sessions left", target.name, sessions_of(*answer))
                          : answer.error().text;
    if (now != state) bench::print_result(now + "\n");
    state = std::move(now);
    if (monotonic_now() + kDrainPollInterval > target.deadline)
      throw Failure(bench::kExitUnavailable,
                    fmt::format("not drained within {}: {}", config::duration_text(flags.timeout), state));
    std::this_thread::sleep_for(std::chrono::nanoseconds(kDrainPollInterval));
    answer = ask(target, wire::Purpose::kStatus);
  }
}

}  // namespace

void add_drain_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "drain", "make a reducer drain, as SIGTERM on its host does, and wait until it has ended");
  app->footer(
      "Needs the pool key; without a key, only the reducer's host may. Exit 0: it has ended. 69: not "
      "reachable, refused, or still draining after --timeout; run it again to wait on.");
  auto flags = std::make_shared<DrainFlags>();
  app->add_option("reducer", flags->reducer, "reducer to drain")->type_name("HOST[:PORT]")->required();
  OptionSet set(*app);
  flags->credentials.add_pool_key_to(set);
  set.duration("--timeout", flags->timeout, "time limit; the reducer's own is its --drain-timeout");
  run_when_selected(*app, chosen, flags, run_drain);
}

}  // namespace sluice::cli
