// Implements `sluice install --nccl-conf`: enables the plugin for every job of this host or image without a
// change of the users' environment.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include "bench/e2e/process/exit_codes.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"

namespace sluice::cli {
namespace {

using bench::Failure;

// The settings of config/nccl.conf, which explains them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSettings = {{
    {"NCCL_COLLNET_ENABLE", "1"},
    {"NCCL_COLLNET_NODE_THRESHOLD", "3"},
    {"NCCL_NET_PLUGIN", "sluice"},
    {"NCCL_NET_PLUGIN_REF_COUNT", "1"},
}};

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file && errno != ENOENT)
    throw Failure(bench::kExitConfig, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the value of the first line NAME=value, like NCCL.
std::string find_value(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(std::string(name) + "=", 0) == 0) return line.substr(name.size() + 1);
  }
  return {};
}

// Replaces the file atomically, because a job may start at the same time.
void replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    throw Failure(bench::kExitFailure, fmt::format("cannot create {}: {}", temporary, std::strerror(errno)));
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  close(fd);
  if (!written || rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    throw Failure(bench::kExitFailure, fmt::format("cannot write {}: {}", path, std::strerror(error)));
  }
}

int run_install(const std::string& path) {
  std::string text = read_file(path);
  if (!text.empty() && text.back() != '\n') text += '\n';
  bool changed = false;
  for (const auto& [name, value] : kSettings) {
    const std::string existing = find_value(text, name);
    if (existing == value) continue;
    if (!existing.empty()) {
      std::printf("%s: kept %.*s=%s; the plugin requires %.*s\n", path.c_str(), static_cast<int>(name.size()),
                  name.data(), existing.c_str(), static_cast<int>(value.size()), value.data());
      continue;
    }
    text += fmt::format("{}={}\n", name, value);
    std::printf("%s: added %.*s=%.*s\n", path.c_str(), static_cast<int>(name.size()), name.data(),
                static_cast<int>(value.size()), value.data());
    changed = true;
  }
  if (changed) {
    replace_file(path, text);
  } else {
    std::printf("%s: nothing to add\n", path.c_str());
  }
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
  run_when_selected(*app, chosen, path,
                    [](const std::string& p) { return run_install(p.empty() ? "/etc/nccl.conf" : p); });
}

}  // namespace sluice::cli
