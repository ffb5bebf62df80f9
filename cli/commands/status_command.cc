// Implements `sluice status`: prints the status of running reducers as JSON.

#include <memory>

#include "bench/e2e/pool/pool_status.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "cli/options/pool_flags.h"
#include "config/json.h"
#include "config/pool.h"
#include "core/log.h"

namespace sluice::cli {
namespace {

// Prints one object per reducer, in order. A reducer that does not answer has {"reducer", "error"} and makes
// the exit code 69.
int run_status(const PoolFlags& flags) {
  const auto pool = bench::value_or_fail(config::read_reducers(flags.reducers), bench::kExitUsage);
  const engine::Identity identity = flags.credentials.identity();
  int code = bench::kExitOk;
  auto all = nlohmann::ordered_json::array();
  for (const config::Endpoint& reducer : pool) {
    nlohmann::ordered_json entry = {{"reducer", config::to_string(reducer)}};
    const auto text = bench::query_status(reducer, identity, flags.timeout);
    if (text) {
      entry["status"] = config::parse_ordered_json(*text);
    } else {
      entry["error"] = text.error().text;
      log::error(text.error().text);
      code = bench::kExitUnavailable;
    }
    all.push_back(std::move(entry));
  }
  bench::print_result(config::json_text(all, 2) + "\n");
  return code;
}

}  // namespace

void add_status_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "status", "print sessions, missing ranks and counters of running reducers as JSON");
  auto flags = std::make_shared<PoolFlags>();
  OptionSet set(*app);
  flags->add_to(set);
  run_when_selected(*app, chosen, flags, run_status);
}

}  // namespace sluice::cli
