// `sluice status`: what running reducers say of themselves, as JSON.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/pool_status.h"
#include "cli/commands.h"
#include "cli/option_set.h"
#include "config/pool.h"
#include "core/log.h"

namespace sluice::cli {
namespace {

struct StatusFlags {
  std::string reducers;
  std::string key_file;
  std::string token_file;
  std::string job = "default";
  Nanos timeout = 5 * kSecond;
};

// One object per reducer, in order; one that does not answer is {"reducer", "error"} and makes the exit
// code 69.
int run_status(const StatusFlags& flags) {
  const auto pool = bench::value_or_fail(config::read_reducers(flags.reducers), bench::kExitUsage);
  const auto credentials = bench::value_or_fail(
      bench::read_credentials(flags.key_file, flags.token_file, flags.job), bench::kExitConfig);
  int code = bench::kExitOk;
  auto all = nlohmann::ordered_json::array();
  for (const config::Endpoint& reducer : pool) {
    nlohmann::ordered_json entry = {{"reducer", config::to_string(reducer)}};
    const auto text = bench::query_status(reducer, credentials, flags.timeout);
    if (text) {
      entry["status"] = nlohmann::ordered_json::parse(*text, nullptr, false);
    } else {
      entry["error"] = text.error().text;
      log::error(text.error().text);
      code = bench::kExitUnavailable;
    }
    all.push_back(std::move(entry));
  }
  std::fputs((all.dump(2) + "\n").c_str(), stdout);
  return code;
}

}  // namespace

void add_status_command(CLI::App& program, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("status", "ask running reducers for sessions, missing ranks, counters");
  auto flags = std::make_shared<StatusFlags>();
  OptionSet set(*app);
  set.text("--reducers", flags->reducers, "LIST", "host:port,host:port,...")->required();
  set.text("--key-file", flags->key_file, "FILE", "pool key, or ...");
  set.text("--token-file", flags->token_file, "FILE", "... the token of --job");
  set.text("--job", flags->job, "NAME", "job that the token is for");
  set.duration("--timeout", flags->timeout, "for each reducer");
  app->callback([flags, &chosen] { chosen = [flags] { return run_status(*flags); }; });
}

}  // namespace sluice::cli
