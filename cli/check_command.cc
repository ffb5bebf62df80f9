// `sluice check plugin`: would NCCL load the plugin here, does it reach the reducers, and do they add?
#include <fmt/format.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/loaded_plugin.h"
#include "cli/check_health.h"
#include "cli/commands.h"
#include "cli/option_set.h"
#include "core/clock.h"

namespace sluice::cli {
namespace {

using bench::Failure;

constexpr int kSuccess = 0, kHostMemory = 1, kFloat32 = 7, kSum = 0;  // NCCL's numbers
constexpr Nanos kReductionTime = 10 * kSecond;

// The plugin's own lines, as NCCL would show them; the last one is the reason when something fails.
std::string last_line;

void show(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* format, ...) {
  std::array<char, 1024> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  last_line = text.data();
  std::printf("%-12s %s\n", level <= 2 ? "  warning" : "  says", text.data());
}

// What the environment of this shell would do to the plugin, whatever the reducers do.
void check_environment(const char* name) {
  const char* const net = std::getenv("NCCL_NET");
  if (net != nullptr && strcasecmp(net, name) != 0) {
    throw Failure(
        bench::kExitConfig,
        fmt::format(
            "NCCL_NET={} is set: NCCL takes only the network of that name and drops this plugin, whose "
            "name is {}; unset it, or set SLUICE_NET_NAME={}",
            net, name, net));
  }
  if (const char* const proto = std::getenv("NCCL_PROTO");
      proto != nullptr && std::strstr(proto, "imple") == nullptr) {
    throw Failure(bench::kExitConfig,
                  fmt::format("NCCL_PROTO={} leaves out Simple, the only protocol of CollNet", proto));
  }
  const char* const enable = std::getenv("NCCL_COLLNET_ENABLE");
  if (enable == nullptr || std::strcmp(enable, "1") != 0) {
    std::printf(
        "note         NCCL_COLLNET_ENABLE=1 is not in this environment; jobs need it, from /etc/nccl.conf or "
        "their own\n");
  }
}

void require(int result, int code, const char* what) {
  if (result != kSuccess)
    throw Failure(static_cast<bench::ExitCode>(code), last_line.empty() ? what : last_line);
}

// A session of one rank: all the way that a request of NCCL goes.
void reduce_once(const bench::CollNetTable& plugin) {
  std::array<std::byte, 128> handle{};
  void* listener = nullptr;
  require(plugin.listen(0, handle.data(), &listener), bench::kExitFailure, "listen failed");
  void* handles[] = {handle.data()};
  void* comm = nullptr;
  const int connected = plugin.connect(handles, 1, 0, listener, &comm);
  plugin.close_listen(listener);
  require(connected, bench::kExitUnavailable, "connect failed");

  std::vector<float> in(1 << 16), out(in.size(), -1.0f);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 1000);
  void* memory = nullptr;
  require(plugin.reg_mr(comm, out.data(), out.size() * sizeof(float), kHostMemory, &memory),
          bench::kExitFailure, "regMr failed");
  const Nanos begin = monotonic_now();
  void* request = nullptr;
  int done = 0;
  while (done == 0) {
    if (request == nullptr) {
      require(plugin.iallreduce(comm, in.data(), out.data(), static_cast<int>(in.size()), kFloat32, kSum,
                                memory, memory, &request),
              bench::kExitUnavailable, "the reduction failed");
    } else {
      require(plugin.test(request, &done, nullptr), bench::kExitUnavailable, "the reduction failed");
    }
    if (monotonic_now() - begin > kReductionTime)
      throw Failure(bench::kExitUnavailable, "the reduction does not end");
    std::this_thread::yield();
  }
  const double us = 1e-3 * static_cast<double>(monotonic_now() - begin);
  plugin.dereg_mr(comm, memory);
  plugin.close_coll(comm);
  if (in != out) throw Failure(bench::kExitWrongData, "the reducers' sum is wrong");
  std::printf("reduction    %zu floats, right, %.0f us\n", in.size(), us);
}

int run_check(const std::string& path) {
  const bench::LoadedPlugin plugin(path);
  std::printf("plugin       %s: %s\n", plugin.path().c_str(), plugin.versions().c_str());
  const bench::CollNetTable& collnet = plugin.collnet();
  check_environment(collnet.name);
  require(collnet.init(&show), bench::kExitConfig, "init failed");
  int devices = 0;
  require(collnet.devices(&devices), bench::kExitConfig, "devices failed");
  if (devices == 0) throw Failure(bench::kExitConfig, "no offload here: " + last_line);
  reduce_once(collnet);
  return bench::kExitOk;
}

}  // namespace

void add_check_command(CLI::App& program, Command& chosen) {
  CLI::App* check = program.add_subcommand("check", "check an installation");
  check->require_subcommand(1);
  CLI::App* app =
      check->add_subcommand("plugin", "load the NCCL plugin as NCCL does, contact the reducers, reduce once");
  app->footer(
      "Reads the variables that the plugin reads in a job: SLUICE_REDUCERS, SLUICE_KEY_FILE, SLUICE_IFNAME, "
      "...\n"
      "Exit 0: all well. 69: a reducer is not there or refuses. 78: the plugin would not be used, with the "
      "reason.");
  add_check_health(*check, chosen);
  auto path = std::make_shared<std::string>();
  app->add_option("path", *path, "the library; default: the one beside this program")->type_name("FILE");
  app->callback([path, &chosen] { chosen = [path] { return run_check(*path); }; });
}

}  // namespace sluice::cli
