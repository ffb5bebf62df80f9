// Implements `sluice blackbox`: merges the black boxes of the processes of a job and says what happened
// first.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/blackbox/blackbox_file.h"
#include "cli/blackbox/blackbox_report.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"

namespace sluice::cli {
namespace {

struct BlackboxFlags {
  std::vector<std::string> files;
  BlackboxView view;
  std::string session;
  std::string json;
};

// The first 1 to 16 digits of a session id, as in logs.
std::optional<uint64_t> find_session(const Timeline& timeline, const std::string& digits) {
  if (digits.empty()) return std::nullopt;
  for (const Timeline::Entry& entry : timeline.entries()) {
    const uint64_t session = entry.event().session;
    if (session != 0 && fmt::format("{:016x}", session).starts_with(digits.substr(0, 16))) return session;
  }
  throw bench::Failure(bench::kExitUsage, "--session " + digits + ": the files have no such session");
}

int run_blackbox(const BlackboxFlags& flags) {
  std::vector<RecordedProcess> processes;
  for (const std::string& file : flags.files)
    processes.push_back(bench::value_or_fail(read_blackbox(file), bench::kExitConfig));
  const Timeline timeline(std::move(processes));
  const FirstEvent first = find_first_event(timeline, find_session(timeline, flags.session));
  bench::print_result(blackbox_report(timeline, first, flags.view));
  bench::write_result_file(flags.json, blackbox_json(timeline, first, flags.view));
  return bench::kExitOk;
}

}  // namespace

void add_blackbox_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "blackbox", "merge the last events of all processes of a job and say what happened first");
  app->footer(
      "Processes write these files when a session fails, into the folder of SLUICE_BLACKBOX or --blackbox, "
      "and on SIGUSR2. Give the files of all ranks and reducers.\n"
      "  sluice blackbox /shared/blackbox/*.jsonl\n"
      "Exit 78: a file cannot be read or is no black box.");
  auto flags = std::make_shared<BlackboxFlags>();
  app->add_option("files", flags->files, "files of the ranks and reducers")->required()->type_name("FILE");
  OptionSet set(*app);
  set.duration("--since", flags->view.since,
               "how far before the end of the session the list of events begins; 0: with the first event");
  set.flag("--all", flags->view.all, "list heartbeats and successful operations too");
  // SLUICE_SESSION is the session of a benchmark.
  app->add_option("--session", flags->session,
                  "session to explain, by the first digits of its id; default: the one that concerns most "
                  "files")
      ->type_name("HEX")
      ->take_last();
  set.output_file("--json", flags->json, "write the same as JSON");
  run_when_selected(*app, chosen, flags, run_blackbox);
}

}  // namespace sluice::cli
