// Implements `sluice check plugin`: loads the NCCL plugin like NCCL, connects to the reducers and reduces
// once.
#include <fmt/format.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "bench/e2e/allreduce/loaded_plugin.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "cli/commands/commands.h"
#include "cli/commands/nccl_libraries.h"
#include "cli/commands/pool/pool_commands.h"
#include "cli/options/option_set.h"
#include "config/nccl_algorithms.h"
#include "config/pool.h"
#include "core/clock.h"
#include "core/parse_number.h"

namespace sluice::cli {
namespace {

using bench::Failure;

constexpr int kSuccess = 0, kHostMemory = 1, kFloat32 = 7, kSum = 0;  // values of NCCL
constexpr Nanos kReductionTimeout = 10 * kSecond;

// The plugin's last log line. It is the reason when a call fails.
std::string last_log_line;

void print_log_line(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
                    const char* format, ...) {
  std::array<char, 1024> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  last_log_line = text.data();
  std::printf("%-12s %s\n", level <= 2 ? "  warning" : "  log", text.data());
}

// Checks that NCCL_ALGO and related variables permit CollNet for allreduce.
void check_algorithms() {
  const auto value = [](const char* variable) -> std::string_view {
    const char* const text = std::getenv(variable);
    return text != nullptr ? text : "";
  };
  const config::NcclAlgorithms values{value("NCCL_ALGO"), value("NCCL_PROTO"), value("NCCL_SYM_KERNEL")};
  if (const std::string reason = config::collnet_exclusion(values); !reason.empty())
    throw Failure(bench::kExitConfig, reason);
  if (config::needs_nccl_2_24(values)) {
    std::printf(
        "note         NCCL_ALGO or NCCL_PROTO has a list for one function; NCCL older than 2.24 finds no "
        "algorithm with it\n");
  }
}

// Checks for NCCL variables in this environment that would disable the plugin.
void check_environment(const char* name) {
  const char* const net = std::getenv("NCCL_NET");
  if (net != nullptr && strcasecmp(net, name) != 0) {
    throw Failure(bench::kExitConfig,
                  fmt::format("NCCL_NET={} is set: NCCL uses only the network of that name and ignores this "
                              "plugin, whose name is {}; unset NCCL_NET, or set SLUICE_NET_NAME={}",
                              net, name, net));
  }
  check_algorithms();
  const char* const enable = std::getenv("NCCL_COLLNET_ENABLE");
  if (enable == nullptr || std::strcmp(enable, "1") != 0) {
    std::printf(
        "note         NCCL_COLLNET_ENABLE=1 is not set in this environment; jobs need it in /etc/nccl.conf "
        "or in their environment\n");
  }
}

// Returns ", behind eth0", the interface of the route to the first reducer, or nothing without one.
std::string card_text() {
  const char* const list = std::getenv("SLUICE_REDUCERS");
  const auto reducers = config::read_reducers(list != nullptr ? list : "");
  if (!reducers || reducers->empty()) return {};
  const auto nic = bench::find_nic_to_peer(reducers->front().host, "");
  return nic ? ", behind " + nic->name : std::string();
}

// Prints how many ranks share this host's network card, if the launcher says so, and what they send. NCCL
// sums inside a host by itself.
void print_ranks_of_host() {
  constexpr std::array kLocalRanks = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                      "SLURM_NTASKS_PER_NODE"};
  for (const char* const variable : kLocalRanks) {
    const char* const value = std::getenv(variable);
    const auto ranks = value != nullptr ? parse_number<uint32_t>(value) : std::nullopt;
    if (!ranks || *ranks < 2) continue;
    const char* const hosts = std::getenv("SLUICE_HOSTS");
    const bool is_off = hosts != nullptr && std::string_view(hosts) == "off";
    std::printf(
        "ranks        %u on this host (%s)%s: %s send their sum once%s\n", *ranks, variable,
        card_text().c_str(), is_off ? "only jobs with NCCL" : "all jobs",
        is_off ? fmt::format("; with SLUICE_HOSTS=off others send {} times as much", *ranks).c_str() : "");
    return;
  }
}

void require_success(int result, int code, const char* message) {
  if (result != kSuccess)
    throw Failure(static_cast<bench::ExitCode>(code), last_log_line.empty() ? message : last_log_line);
}

// Runs one allreduce in a session of one rank, with the calls that NCCL makes.
void reduce_once(const bench::CollNetTable& plugin) {
  std::array<std::byte, 128> handle{};
  void* listener = nullptr;
  require_success(plugin.listen(0, handle.data(), &listener), bench::kExitFailure, "listen failed");
  void* handles[] = {handle.data()};
  void* comm = nullptr;
  const int connected = plugin.connect(handles, 1, 0, listener, &comm);
  plugin.close_listen(listener);
  require_success(connected, bench::kExitUnavailable, "connect failed");

  std::vector<float> in(1 << 16), out(in.size(), -1.0f);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 1000);
  void* memory = nullptr;
  require_success(plugin.reg_mr(comm, out.data(), out.size() * sizeof(float), kHostMemory, &memory),
                  bench::kExitFailure, "regMr failed");
  const Nanos begin = monotonic_now();
  void* request = nullptr;
  int done = 0;
  while (done == 0) {
    if (request == nullptr) {
      require_success(plugin.iallreduce(comm, in.data(), out.data(), static_cast<int>(in.size()), kFloat32,
                                        kSum, memory, memory, &request),
                      bench::kExitUnavailable, "the reduction failed");
    } else {
      require_success(plugin.test(request, &done, nullptr), bench::kExitUnavailable, "the reduction failed");
    }
    if (monotonic_now() - begin > kReductionTimeout)
      throw Failure(bench::kExitUnavailable,
                    fmt::format("the reduction did not finish within {} s", kReductionTimeout / kSecond));
    std::this_thread::yield();
  }
  const double us = 1e-3 * static_cast<double>(monotonic_now() - begin);
  plugin.dereg_mr(comm, memory);
  plugin.close_coll(comm);
  if (in != out) throw Failure(bench::kExitCheckFailed, "the reducers returned a wrong sum");
  std::printf("reduction    %zu floats, correct, %.0f us\n", in.size(), us);
}

struct CheckOptions {
  std::string plugin;
  std::string nccl;
};

int run_check(const CheckOptions& options) {
  const bench::LoadedPlugin plugin(options.plugin);
  std::printf("plugin       %s: %s\n", plugin.path().c_str(), plugin.versions().c_str());
  print_nccl_libraries(find_nccl_libraries(options.nccl));
  warn_about_other_plugins(plugin.path());
  const bench::CollNetTable& collnet = plugin.collnet();
  check_environment(collnet.name);
  print_ranks_of_host();
  require_success(collnet.init(&print_log_line), bench::kExitConfig, "init failed");
  int devices = 0;
  require_success(collnet.devices(&devices), bench::kExitConfig, "devices failed");
  if (devices == 0) throw Failure(bench::kExitConfig, "the plugin does not offload: " + last_log_line);
  reduce_once(collnet);
  return bench::kExitOk;
}

}  // namespace

void add_check_command(CLI::App& program, Command& chosen) {
  CLI::App* check = program.add_subcommand("check", "check an installation");
  check->require_subcommand(1);
  CLI::App* app = check->add_subcommand(
      "plugin", "load the NCCL plugin like NCCL, connect to the reducers and reduce once");
  app->footer(
      "Reads the same variables as the plugin in a job: SLUICE_REDUCERS, SLUICE_KEY_FILE, SLUICE_IFNAME, "
      "...\n"
      "Exit 0: success. 69: a reducer is unavailable or rejects the session. 78: NCCL would not use the "
      "plugin.");
  add_check_health_command(*check, chosen);
  add_check_pool_command(*check, chosen);
  auto options = std::make_shared<CheckOptions>();
  app->add_option("path", options->plugin, "path of the plugin; default: in the folder of this program")
      ->type_name("FILE");
  app->add_option("--nccl", options->nccl,
                  "path of the job's libnccl.so.2; default: of the dynamic linker and of Python packages")
      ->type_name("FILE");
  run_when_selected(*app, chosen, options, run_check);
}

}  // namespace sluice::cli
