// Implements `sluice bits`: compares the bit records that SLUICE_BITS names.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/bits/bit_record_reader.h"
#include "cli/bits/bit_report.h"
#include "cli/bits/recorded_run.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

struct BitsFlags {
  std::vector<std::string> files;
  uint32_t rows = 10;
};

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    paths.push_back(entry->path().string());
  if (error) throw bench::Failure(bench::kExitConfig, "cannot read " + folder + ": " + error.message());
  if (paths.empty()) throw bench::Failure(bench::kExitConfig, folder + ": the folder has no bit record");
  std::ranges::sort(paths);
  return paths;
}

BitRecordGroup read_group(const std::string& path) {
  std::error_code error;
  BitRecordGroup group{.is_folder = fs::is_directory(path, error), .records = {}};
  const std::vector<std::string> paths = group.is_folder ? files_of_folder(path) : std::vector{path};
  for (const std::string& file : paths)
    group.records.push_back(bench::value_or_fail(read_bit_record(file), bench::kExitConfig));
  return group;
}

int run_bits(const BitsFlags& flags) {
  std::vector<BitRecordGroup> groups;
  for (const std::string& path : flags.files) groups.push_back(read_group(path));
  const auto runs = bench::value_or_fail(group_into_runs(std::move(groups)), bench::kExitConfig);
  const BitReport report = report_bits(runs, flags.rows);
  bench::print_result(report.text);
  if (report.different > 0) return bench::kExitCheckFailed;
  // A script must not take this for equal results.
  if (!report.is_complete)
    throw bench::Failure(bench::kExitFailure,
                         "nothing to compare: the files have no result of the same operation");
  return bench::kExitOk;
}

}  // namespace

void add_bits_command(CLI::App& program, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("bits", "compare the results that clients record with SLUICE_BITS, bit by bit");
  app->footer(
      "The ranks of each session are compared, then each run with the first one. A run is a session or, "
      "where a folder is given, its sessions in the order of their begin.\n"
      "  SLUICE_BITS=/tmp/a.bits sluice demo digits\n"
      "  SLUICE_BITS=/tmp/b.bits sluice demo digits --reducers 3\n"
      "  sluice bits /tmp/a-*.bits /tmp/b-*.bits\n"
      "Exit 0: all results are equal. 2: a result differs. 1: nothing to compare. 78: a file cannot be read, "
      "or is no bit record.");
  auto flags = std::make_shared<BitsFlags>();
  app->add_option("files", flags->files, "bit records, each of one session and rank, or folders of them")
      ->required()
      ->type_name("FILE");
  OptionSet set(*app);
  set.number("--rows", flags->rows, "most operations to list of each session");
  run_when_selected(*app, chosen, flags, run_bits);
}

}  // namespace sluice::cli
