// `sluice discover`: who is this process, and where are the reducers? For scripts, and for people who wonder.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/e2e/exit_codes.h"
#include "cli/commands.h"
#include "cli/discovery.h"
#include "core/log.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using config::discovery::Found;

struct DiscoverFlags {
  std::string source;
  std::string format = "json";
};

void print_json(const Found& found) {
  nlohmann::ordered_json out = {{"role", to_string(found.role)}, {"index", nullptr}};
  if (found.index) out["index"] = *found.index;
  out["reducers"] = nlohmann::ordered_json::array();
  for (const config::Endpoint& e : found.reducers) out["reducers"].push_back(config::to_string(e));
  out["workers"] = found.workers;
  out["source"] = to_string(found.source);
  out["job"] = found.job;
  std::fputs((out.dump() + "\n").c_str(), stdout);
}

// For a shell, and as it is for what reads NAME=VALUE lines, unless a platform's host names need quotes.
std::string for_shell(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.,:*[]@+").find(c) != std::string_view::npos;
  };
  if (std::ranges::all_of(text, is_plain)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void print_env(const Found& found) {
  std::string out = "SLUICE_REDUCERS=" + for_shell(list_of(found)) + "\n";
  if (!found.job.empty()) out += "SLUICE_JOB_ID=" + for_shell(found.job) + "\n";
  std::fputs(out.c_str(), stdout);
}

void print_hosts(const Found& found) {
  for (const config::Endpoint& e : found.reducers) std::fputs((config::to_string(e) + "\n").c_str(), stdout);
}

int run_discover(const DiscoverFlags& flags) {
  const auto outcome = discover_here(flags.source);
  const std::string passed = words_on_passed(outcome);
  if (!outcome.found) {
    throw Failure(bench::kExitUnavailable,
                  "no reducers found" + (passed.empty() ? ": discovery is switched off" : "; " + passed));
  }
  log::info(words_on(*outcome.found) + (passed.empty() ? "" : "; passed over: " + passed));
  if (flags.format == "json") print_json(*outcome.found);
  if (flags.format == "env") print_env(*outcome.found);
  if (flags.format == "hosts") print_hosts(*outcome.found);
  return bench::kExitOk;
}

}  // namespace

void add_discover_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "discover", "find the reducers and this process's role in what the platform says here");
  app->footer(
      "On stderr: who said so, and why nobody before did.\n"
      "Exit 0; 69: nothing was found, or the DNS did not say in time; 78: what is configured is malformed.");
  auto flags = std::make_shared<DiscoverFlags>();
  // Not a variable of its own name: the library and the plugin read this one.
  app->add_option("--source", flags->source,
                  "one of " + config::discovery::source_words() + " (variable SLUICE_DISCOVERY)")
      ->type_name("SOURCE")
      ->check([](const std::string& word) {
        return config::discovery::is_source_word(word)
                   ? ""
                   : word + " is none of " + config::discovery::source_words();
      });
  // Nor is this one, where `plan` has other formats.
  app->add_option(
         "--format", flags->format,
         "json; env: variables as NAME=VALUE; hosts: an address a line, a file for SLUICE_REDUCERS=@FILE")
      ->check(CLI::IsMember({"json", "env", "hosts"}))
      ->type_name("HOW")
      ->capture_default_str()
      ->take_last();
  app->callback([flags, &chosen] { chosen = [flags] { return run_discover(*flags); }; });
}

}  // namespace sluice::cli
