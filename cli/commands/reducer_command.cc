// Implements `sluice reducer`: runs a reducer until it is drained or stopped.
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "blackbox/dump_thread.h"
#include "blackbox/event_source.h"
#include "blackbox/process_dump.h"
#include "cli/commands/commands.h"
#include "cli/options/configuration.h"
#include "cli/options/option_set.h"
#include "cli/options/reducer_flags.h"
#include "cli/process/logging.h"
#include "cli/process/reducer_service.h"
#include "cli/process/signal_receiver.h"
#include "cli/process/store_service.h"
#include "cli/process/systemd_notifier.h"
#include "config/host/writable_path.h"
#include "config/json.h"
#include "config/secret_file.h"
#include "config/sizes.h"
#include "core/clock.h"
#include "core/log.h"
#include "reducer/reducer.h"
#include "transport/tcp/address.h"

namespace sluice::cli {
namespace {

using bench::Failure;

double megabytes(const nlohmann::json& bytes) {
  return 1e-6 * bytes.get<double>();
}

// Returns ", RDMA over mlx5_0 (10.0.0.1)", or the reason why RDMA is not available.
std::string rdma_text(const nlohmann::json& rdma) {
  const auto rails = rdma["rails"].get<std::vector<std::string>>();
  if (!rails.empty()) return fmt::format(", RDMA over {}", fmt::join(rails, ", "));
  const auto reason = rdma["why_none"].get<std::string>();
  return reason.empty() ? "" : ", TCP only: " + reason;
}

// Returns ", link 25gbit", or nothing if the rate is unknown.
std::string link_text(uint64_t bits_per_second) {
  return bits_per_second == 0 ? "" : ", link " + config::rate_text(bits_per_second);
}

void log_start(reducer::Reducer& server, const reducer::ReducerOptions& options,
               const std::optional<reducer::admin::HttpOptions>& http, uint16_t http_port) {
  const auto status = config::parse_json(server.status_json());
  log::info(fmt::format(
      "reducer {:016x} listens on {}: {} lanes, memory limit {:.0f} MB{}, {}", server.id(),
      transport::tcp::endpoint_text(options.listen_host.empty() ? "*" : options.listen_host, server.port()),
      status["lanes"].get<uint64_t>(), megabytes(status["memory"]["limit_bytes"]),
      link_text(status["link_rate"].get<uint64_t>()),
      (options.key_file.empty() ? "no authentication" : "workers must prove a token") +
          std::string(options.tls == reducer::TlsMode::kOff  ? ""
                      : options.tls == reducer::TlsMode::kOn ? ", TLS offered"
                                                             : ", TLS required") +
          rdma_text(status["rdma"])));
  if (http) {
    log::info(fmt::format("health, metrics and status at http://{}/",
                          transport::tcp::endpoint_text(http->host.empty() ? "*" : http->host, http_port)));
  }
}

void log_end(reducer::Reducer& server, reducer::ExitReason reason) {
  const auto status = config::parse_json(server.status_json());
  const auto& sessions = status["sessions"];
  const auto& data = status["data"];
  const auto moved = sessions["moved"].get<uint64_t>();
  log::info(fmt::format(
      "ended{} after {:.1f} s: {} sessions completed, {} failed{}; {:.1f} MB received, {:.1f} MB sent; "
      "CPU user {:.2f} s, system {:.2f} s",
      reason == reducer::ExitReason::kDrainTimeout ? " by the drain timeout" : "",
      status["uptime_seconds"].get<double>(), sessions["completed"].get<uint64_t>(),
      sessions["failed"].get<uint64_t>(), moved == 0 ? "" : fmt::format(", {} moved", moved),
      megabytes(data["bytes_in"]), megabytes(data["bytes_out"]), status["cpu"]["user_seconds"].get<double>(),
      status["cpu"]["system_seconds"].get<double>()));
}

// Maps an error of the reducer library to an exit code.
Failure failure_of(const Error& error, const ConfigFileOptions& config_file) {
  if (error.code == Errc::kInvalidArgument) {
    // Options contradict each other. With a configuration file, the user fixes them there.
    return config_file.path.empty() ? Failure(bench::kExitUsage, error.text)
                                    : Failure(bench::kExitConfig, config_file.path + ": " + error.text);
  }
  if (error.code == Errc::kMemoryLimit) return {bench::kExitConfig, error.text};
  return {error.code == Errc::kAddressInUse ? bench::kExitTryAgain : bench::kExitFailure, error.text};
}

std::string joined(const std::vector<std::string>& items) {
  return fmt::format("{}", fmt::join(items, ", "));
}

// Handles SIGHUP: applies the reloadable options of the configuration file and rereads certificates and pool
// keys. An invalid file changes nothing.
void reload(reducer::Reducer& server, StoreService& models, const ReducerFlags& flags, const LogFlags& log) {
  std::optional<config::SecretFile> keys;
  const auto changes = flags.config_file().configuration->reload([&]() -> Result<void> {
    SLUICE_ASSIGN_OR_RETURN(tls, models.read_tls(flags.options()));
    SLUICE_ASSIGN_OR_RETURN(read, server.reconfigure(flags.options()));
    models.use(std::move(tls), read);
    keys = read;
    return {};
  });
  if (!changes) return log::error("configuration not reloaded: " + changes.error().text);
  set_log_level(log.level);
  const reducer::ReducerOptions now = flags.options();
  const bool certificates = now.tls != reducer::TlsMode::kOff && !now.tls_files.certificate.empty();
  log::info("configuration reloaded: " +
            (changes->applied.empty() ? "no option changed" : joined(changes->applied)) +
            (certificates ? "; certificates reloaded" : "") +
            (!keys              ? ""
             : keys->old_secret ? "; 2 pool keys"
                                : "; 1 pool key"));
  if (!changes->require_restart.empty())
    log::warn("changed options that require a restart: " + joined(changes->require_restart));
}

// Checks what the reducer will write to: a failure after it listens would end sessions.
void check_outputs(const ReducerFlags& flags, const StoreService& models) {
  const auto require = [](const char* option, const std::string& path, const Result<void>& checked) {
    if (!checked)
      throw Failure(bench::kExitConfig, fmt::format("{} {}: {}", option, path, checked.error().text));
  };
  require("--state", flags.models().folder, models.check());
  if (!flags.blackbox().empty())
    require("--blackbox", flags.blackbox(), blackbox::check_dump_path(flags.blackbox()));
  for (const auto& [option, path] :
       {std::pair("--port-file", flags.port_file()), std::pair("--http-port-file", flags.http_port_file())}) {
    if (!path.empty()) require(option, path, config::check_output_file(path));
  }
}

int check_reducer(const ReducerFlags& flags) {
  auto checked = flags.check();
  const reducer::ReducerOptions options = flags.options();
  if (checked) checked = reducer::check_options(options);
  if (!checked) throw Failure(bench::kExitConfig, failure_of(checked.error(), flags.config_file()).what());
  (void)flags.http_options();
  if (!options.key_file.empty()) {
    const auto key = bench::value_or_fail(config::read_secret_file(options.key_file), bench::kExitConfig);
    if (!key.warning.empty()) log::warn(key.warning);
  }
  check_outputs(flags, StoreService(flags.models()));
  for (const std::string& line : flags.config_file().configuration->overrides()) std::puts(line.c_str());
  std::puts("configuration is valid");
  return bench::kExitOk;
}

// Time for a reducer to stop after its sessions have ended.
constexpr Nanos kStopTime = 10 * kSecond;

// Returns a check for the watchdog: true while the control loop answers within `timeout` and every lane made
// a turn in the last second. It becomes true again as soon as all lanes have made a turn.
std::function<bool()> liveness_check(reducer::Reducer& server, Nanos timeout) {
  return [&server, timeout, last_turns = std::vector<uint64_t>(), last_progress = Nanos{0},
          is_alive = true]() mutable {
    auto turns = server.lane_turns(timeout);
    if (!turns) return false;
    bool all_turned = true;
    for (size_t i = 0; i < last_turns.size(); ++i) all_turned = all_turned && (*turns)[i] != last_turns[i];
    if (all_turned) {
      last_turns = std::move(*turns);
      last_progress = monotonic_now();
      is_alive = true;
    } else if (monotonic_now() - last_progress >= kSecond) {
      is_alive = false;
    }
    return is_alive;
  };
}

// Class ExitWaiter waits in a thread until the reducer has ended, and then signals an eventfd. Its destructor
// stops the reducer.
class ExitWaiter {
 public:
  ExitWaiter(reducer::Reducer& server, int ended_fd)
      : server_(server), thread_([this, ended_fd] {
          reason_ = server_.wait();
          eventfd_write(ended_fd, 1);
        }) {}
  ExitWaiter(const ExitWaiter&) = delete;
  ExitWaiter& operator=(const ExitWaiter&) = delete;
  ~ExitWaiter() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }
  [[nodiscard]] reducer::ExitReason join() {
    thread_.join();
    return reason_;
  }

 private:
  reducer::Reducer& server_;
  reducer::ExitReason reason_ = reducer::ExitReason::kDrained;
  std::thread thread_;  // last, because it uses the other members
};

// Calls the SIGHUP handler. An exception, such as a lack of memory, must not end the running sessions.
void handle_hangup(const std::function<void()>& on_hangup) {
  try {
    on_hangup();
  } catch (const std::exception& e) {
    log::error(std::string("configuration not reloaded: ") + e.what());
  }
}

// Returns the exit code of a reducer that was not stopped by a second signal.
int exit_code_of(reducer::ExitReason reason, int drain_exit_code) {
  switch (reason) {
    case reducer::ExitReason::kDrained:
    case reducer::ExitReason::kDrainTimeout: return drain_exit_code;
    case reducer::ExitReason::kJobDone: return bench::kExitOk;
    case reducer::ExitReason::kJobNeverStarted: return bench::kExitTryAgain;
  }
  return bench::kExitFailure;
}

// Serves until the reducer ends by itself or by signals. Returns the exit code.
int serve(reducer::Reducer& server, const SystemdNotifier& notifier, const SignalReceiver& signals,
          Nanos drain_timeout, int drain_exit_code, const std::function<void()>& on_hangup) {
  const transport::tcp::Socket ended(eventfd(0, EFD_CLOEXEC));
  ExitWaiter waiter(server, ended.fd());
  std::optional<Watchdog> watchdog(std::in_place, notifier,
                                   liveness_check(server, std::min(kSecond, notifier.watchdog_period() / 4)));
  blackbox::DumpThread dump;
  std::optional<int> code;  // of a second signal
  for (int stop_signals = 0;;) {
    const int number = signals.wait(ended.fd());
    if (number == 0) break;
    blackbox::EventSource().record(blackbox::EventKind::kSignal, {.a = static_cast<uint64_t>(number)});
    if (number == SIGUSR2) {
      dump.request_by_operator("SIGUSR2");
    } else if (number == SIGHUP) {
      handle_hangup(on_hangup);
    } else if (++stop_signals == 1) {
      // Extends systemd's stop timeout, so that it does not kill the reducer during the drain.
      notifier.notify(fmt::format("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC={}",
                                  (drain_timeout + kStopTime) / kMicrosecond));
      server.drain();
    } else {
      code = 128 + number;
      server.stop();
    }
  }
  watchdog.reset();  // the lanes have ended and make no more turns
  const reducer::ExitReason reason = waiter.join();
  log_end(server, reason);
  return code.value_or(exit_code_of(reason, drain_exit_code));
}

// Each lane connection needs a descriptor. Shells and services set a low soft limit for programs that use
// select(); this one does not.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log::warn(fmt::format("cannot raise the limit of file descriptors to {}: {}", limit.rlim_max,
                          std::strerror(errno)));
}

int run_reducer(const ReducerFlags& flags, const LogFlags& log) {
  if (flags.config_file().check) return check_reducer(flags);
  for (const std::string& line : flags.config_file().configuration->overrides()) log::info(line);
  // The reader of the log may end first; a failed write must not end the reducer.
  (void)std::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  if (const auto checked = flags.check(); !checked) throw failure_of(checked.error(), flags.config_file());
  reducer::ReducerOptions options = flags.options();
  StoreService models(flags.models());
  models.attach(options);
  const auto http = flags.http_options();
  if (!options.key_file.empty())
    (void)bench::value_or_fail(config::read_secret_file(options.key_file), bench::kExitConfig);

  check_outputs(flags, models);

  blackbox::name_process("sluice reducer");
  blackbox::set_dump_path(flags.blackbox());
  blackbox::EventSource().record(blackbox::EventKind::kStarted, {}, "sluice reducer");
  const SystemdNotifier notifier;
  const SignalReceiver signals;
  auto started = ReducerService::start(options, http);
  if (!started) throw failure_of(started.error(), flags.config_file());
  reducer::Reducer& server = (*started)->reducer();
  log_start(server, options, http, (*started)->http_port());
  const auto opened =
      models.start(options, server.port(), [&] { return signals.is_stop_pending() || server.is_draining(); });
  if (opened) {
    bench::write_result_file(flags.port_file(), fmt::format("{}\n", server.port()));
    if (http) bench::write_result_file(flags.http_port_file(), fmt::format("{}\n", (*started)->http_port()));
    notifier.notify(fmt::format("READY=1\nSTATUS=listening on port {}", server.port()));
  } else if (opened.error().code != Errc::kShutdown) {  // otherwise a signal or drain ends serve()
    throw failure_of(opened.error(), flags.config_file());
  }
  const int code = serve(server, notifier, signals, options.drain_timeout, flags.drain_exit_code(),
                         [&] { reload(server, models, flags, log); });
  models.stop();
  return code;
}

}  // namespace

void add_reducer_command(CLI::App& program, Command& chosen, const LogFlags& log) {
  CLI::App* app = program.add_subcommand(
      "reducer", "run a reducer, which receives contributions from workers and returns their sums");
  app->fallthrough();  // accepts the program's options, such as --log-level, after the subcommand
  app->footer(
      "SIGTERM or SIGINT drains the reducer: it accepts no new sessions, fault-tolerant sessions move to "
      "their other "
      "reducers, and the other sessions may finish within --drain-timeout. Then it exits with "
      "--drain-exit-code.\n"
      "A second signal stops it at once, exit 130 or 143. SIGHUP reloads certificates, pool keys and "
      "the options marked [SIGHUP]. SIGUSR2 writes the black box: the last events, for `sluice blackbox`.\n"
      "Exit 75: port in use. Exit 78: key unreadable, or invalid variable or configuration file.\n"
      "With --mode job: exit 0 when the expected ranks have connected and left, 75 when they did not connect "
      "in time.");
  auto flags = std::make_shared<ReducerFlags>();
  OptionSet set(*app);
  flags->add_to(set);
  run_when_selected(*app, chosen, flags, [&log](const ReducerFlags& f) { return run_reducer(f, log); });
}

}  // namespace sluice::cli
