// Implements `sluice trace`: summarizes the traces that SLUICE_TRACE names.
#include <memory>
#include <string>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "cli/trace/trace_reader.h"
#include "cli/trace/trace_summary.h"

namespace sluice::cli {
namespace {

struct TraceSummaryFlags {
  std::vector<std::string> files;
  uint32_t rows = 10;
};

int run_summary(const TraceSummaryFlags& flags) {
  std::vector<TracedSession> sessions;
  for (const std::string& file : flags.files)
    sessions.push_back(bench::value_or_fail(read_trace(file), bench::kExitConfig));
  bench::print_result(trace_summary(sessions, flags.rows));
  return bench::kExitOk;
}

}  // namespace

void add_trace_commands(CLI::App& program, Command& chosen) {
  CLI::App* trace = program.add_subcommand("trace", "read the traces that clients write with SLUICE_TRACE");
  trace->require_subcommand(1);
  CLI::App* app = trace->add_subcommand("summary", "print where the time of the operations went");
  app->footer(
      "Several files, such as those of the ranks of a session, give one summary. Perfetto "
      "(https://ui.perfetto.dev) shows a file as a timeline.\n"
      "  SLUICE_TRACE=/tmp/trace.json sluice demo digits\n"
      "  sluice trace summary /tmp/trace-*.json\n"
      "Exit 78: a file cannot be read, or is no such trace.");
  auto flags = std::make_shared<TraceSummaryFlags>();
  app->add_option("files", flags->files, "traces, each of one session and rank")
      ->required()
      ->type_name("FILE");
  OptionSet set(*app);
  set.number("--rows", flags->rows, "most lines of each list");
  run_when_selected(*app, chosen, flags, run_summary);
}

}  // namespace sluice::cli
