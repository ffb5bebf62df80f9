// Implements `sluice install --nccl-conf`: enables the plugin for every job of this host or image without a
// change of the users' environment.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "config/file_contents.h"
#include "core/units.h"

namespace sluice::cli {
namespace {

// The settings of config/nccl.conf, which explains them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSettings = {{
    {"NCCL_COLLNET_ENABLE", "1"},
    {"NCCL_COLLNET_NODE_THRESHOLD", "3"},
    {"NCCL_NET_PLUGIN", "sluice"},
    {"NCCL_NET_PLUGIN_REF_COUNT", "1"},
}};

// A missing file is empty, and so is a device, which can only be written.
std::string read_file(const std::string& path) {
  using Status = config::FileContents::Status;
  auto file = config::read_file_contents(path, kMiB, config::FileKind::kRegular);
  if (file.status == Status::kNotFound || file.status == Status::kNotRegular) return {};
  return bench::value_or_fail(config::text_or_error(std::move(file), path, kMiB, "file"), bench::kExitConfig);
}

// Returns the value of the first line NAME=value, like NCCL.
std::string find_value(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(std::string(name) + "=", 0) == 0) return line.substr(name.size() + 1);
  }
  return {};
}

int run_install(const std::string& path) {
  std::string text = read_file(path);
  std::string added;
  if (!text.empty() && text.back() != '\n') text += '\n';
  for (const auto& [name, value] : kSettings) {
    const std::string existing = find_value(text, name);
    if (existing == value) continue;
    if (!existing.empty()) {
      std::printf("%s: kept %.*s=%s; the plugin requires %.*s\n", path.c_str(), static_cast<int>(name.size()),
                  name.data(), existing.c_str(), static_cast<int>(value.size()), value.data());
      continue;
    }
    text += fmt::format("{}={}\n", name, value);
    added += fmt::format("{}: added {}={}\n", path, name, value);
  }
  // Atomically, because a job may start at the same time.
  if (!added.empty()) bench::write_result_file(path, text);
  bench::print_result(added.empty() ? fmt::format("{}: nothing to add\n", path) : added);
  return bench::kExitOk;
}

}  // namespace

void add_install_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand("install", "enable the NCCL plugin for this host or image");
  app->footer(
      "Variables in a job's environment have precedence over the file. Existing settings of the file are "
      "kept.");
  auto path = std::make_shared<std::string>();
  app->add_option("--nccl-conf", *path, "add the plugin's settings to this NCCL configuration file")
      ->expected(0, 1)
      ->default_str("/etc/nccl.conf")
      ->type_name("FILE")
      ->required();
  run_when_selected(*app, chosen, path, [](const std::string& p) {
    if (p.empty()) throw bench::Failure(bench::kExitUsage, "--nccl-conf: the name of the file is empty");
    return run_install(p);
  });
}

}  // namespace sluice::cli
