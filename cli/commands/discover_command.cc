// Implements `sluice discover`: prints this process's role and the reducer addresses, for scripts and for
// debugging.

#include <algorithm>
#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/commands/discovery_report.h"
#include "config/json.h"
#include "core/log.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using config::discovery::DiscoveryResult;

struct DiscoverFlags {
  std::string source;
  std::string format = "json";
};

void print_json(const DiscoveryResult& result) {
  nlohmann::ordered_json out = {{"role", to_string(result.role)}, {"index", nullptr}};
  if (result.index) out["index"] = *result.index;
  out["reducers"] = nlohmann::ordered_json::array();
  for (const config::Endpoint& e : result.reducers) out["reducers"].push_back(config::to_string(e));
  out["workers"] = result.workers;
  out["source"] = to_string(result.source);
  out["job"] = result.job;
  bench::print_result(config::json_text(out) + "\n");
}

// Quotes a text for a shell only when necessary, so that readers of NAME=VALUE lines without shell syntax
// also work.
std::string shell_quoted(const std::string& text) {
  const auto is_safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.,:*[]@+").find(c) != std::string_view::npos;
  };
  if (std::ranges::all_of(text, is_safe)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void print_env(const DiscoveryResult& result) {
  std::string out = "SLUICE_REDUCERS=" + shell_quoted(endpoint_list(result)) + "\n";
  if (!result.job.empty()) out += "SLUICE_JOB_ID=" + shell_quoted(result.job) + "\n";
  bench::print_result(out);
}

void print_hosts(const DiscoveryResult& result) {
  std::string out;
  for (const config::Endpoint& e : result.reducers) out += config::to_string(e) + "\n";
  bench::print_result(out);
}

int run_discover(const DiscoverFlags& flags) {
  const auto outcome = discover_or_fail(flags.source);
  const std::string skipped = skipped_sources_text(outcome);
  if (!outcome.result) {
    throw Failure(bench::kExitUnavailable,
                  "no reducers found" + (skipped.empty() ? ": discovery is disabled" : "; " + skipped));
  }
  log::info(discovery_text(*outcome.result) + (skipped.empty() ? "" : "; skipped: " + skipped));
  if (flags.format == "json") print_json(*outcome.result);
  if (flags.format == "env") print_env(*outcome.result);
  if (flags.format == "hosts") print_hosts(*outcome.result);
  return bench::kExitOk;
}

}  // namespace

void add_discover_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "discover", "find the reducers and this process's role from the platform's environment");
  app->footer(
      "Prints to stderr the source of the result and why earlier sources were skipped.\n"
      "Exit 69: no reducers found, or DNS did not answer in time. Exit 78: invalid configuration.");
  auto flags = std::make_shared<DiscoverFlags>();
  // Has no variable SLUICE_SOURCE, because the library and the plugin read SLUICE_DISCOVERY.
  app->add_option("--source", flags->source,
                  "source to query: " + config::discovery::source_names() + " (variable SLUICE_DISCOVERY)")
      ->type_name("SOURCE")
      ->check([](const std::string& name) {
        return config::discovery::is_source_name(name)
                   ? ""
                   : name + ": expected one of " + config::discovery::source_names();
      });
  // Has no variable, because `plan` has an option of the same name with other formats.
  app->add_option("--format", flags->format,
                  "output format: json; env: variables as NAME=VALUE; hosts: one address per line, for "
                  "SLUICE_REDUCERS=@FILE")
      ->check(CLI::IsMember({"json", "env", "hosts"}))
      ->type_name("FORMAT")
      ->capture_default_str()
      ->take_last();
  run_when_selected(*app, chosen, flags, run_discover);
}

}  // namespace sluice::cli
