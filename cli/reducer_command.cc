// `sluice reducer`: runs a reducer until it is drained or stopped.
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/port_file.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/logging.h"
#include "cli/option_set.h"
#include "cli/program.h"
#include "cli/reducer_flags.h"
#include "cli/signals.h"
#include "cli/supervisor.h"
#include "config/secret_file.h"
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

// ", RDMA by mlx5_0 (10.0.0.1)"
std::string words_on_rdma(const nlohmann::json& rdma) {
  const auto rails = rdma["rails"].get<std::vector<std::string>>();
  if (!rails.empty()) return fmt::format(", RDMA by {}", fmt::join(rails, ", "));
  const auto why = rdma["why_none"].get<std::string>();
  return why.empty() ? "" : ", TCP: " + why;
}

void say_started(reducer::Reducer& server, const reducer::ReducerOptions& options) {
  const auto status = nlohmann::json::parse(server.status_json());
  log::info(fmt::format(
      "reducer {:016x} listens on {}: {} lanes, memory limit {:.0f} MB, {}", server.id(),
      transport::tcp::endpoint_text(options.listen_host.empty() ? "*" : options.listen_host, server.port()),
      status["lanes"].get<uint64_t>(), megabytes(status["memory"]["limit_bytes"]),
      (options.key_file.empty() ? "no authentication" : "workers must prove a token") +
          std::string(options.tls == reducer::TlsMode::kOff  ? ""
                      : options.tls == reducer::TlsMode::kOn ? ", TLS for those that offer it"
                                                             : ", TLS alone") +
          words_on_rdma(status["rdma"])));
  if (options.http) {
    log::info(fmt::format("health, metrics and status at http://{}/",
                          transport::tcp::endpoint_text(options.http->host.empty() ? "*" : options.http->host,
                                                        server.http_port())));
  }
}

void say_ended(reducer::Reducer& server, reducer::ExitReason reason) {
  const auto status = nlohmann::json::parse(server.status_json());
  const auto& sessions = status["sessions"];
  const auto& data = status["data"];
  const auto moved = sessions["moved"].get<uint64_t>();
  log::info(fmt::format(
      "{} after {:.1f} s: {} sessions completed, {} failed{}; {:.1f} MB received, {:.1f} MB sent; CPU user "
      "{:.2f} s, system {:.2f} s",
      reason == reducer::ExitReason::kDrainTimeout ? "ended by the drain timeout" : "ended",
      status["uptime_seconds"].get<double>(), sessions["completed"].get<uint64_t>(),
      sessions["failed"].get<uint64_t>(), moved == 0 ? "" : fmt::format(", {} moved", moved),
      megabytes(data["bytes_in"]), megabytes(data["bytes_out"]), status["cpu"]["user_seconds"].get<double>(),
      status["cpu"]["system_seconds"].get<double>()));
}

// The library says kSystem and kInvalidArgument with words; scripts want to know which of them it was.
Failure failure_of(const Error& error, const ByFile& by_file) {
  if (error.code == Errc::kInvalidArgument) {
    // Options that contradict: who mends that edits the file where there is one.
    return by_file.path.empty() ? Failure(bench::kExitUsage, error.text)
                                : Failure(bench::kExitConfig, by_file.path + ": " + error.text);
  }
  return {error.text.find("in use") != std::string::npos ? bench::kExitTryAgain : bench::kExitFailure,
          error.text};
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

// SIGHUP: what may change is taken from the file as it is now, with the files of certificates that it names.
// A file that is wrong changes nothing.
void read_again(reducer::Reducer& server, const ReducerFlags& flags, const LogFlags& log) {
  const auto changes = flags.by_file().configuration->reread(
      [&] { return server.reconfigure(reducer::reloadable(flags.options())); });
  if (!changes) return log::error("nothing is changed by SIGHUP: " + changes.error().text);
  set_log_level(log.level);
  const reducer::ReducerOptions now = flags.options();
  const bool certificates = now.tls != reducer::TlsMode::kOff && !now.tls_files.certificate.empty();
  log::info(
      "read again by SIGHUP: " + (changes->taken.empty() ? "no option has changed" : joined(changes->taken)) +
      (certificates ? "; certificates as they are now" : ""));
  if (!changes->later.empty())
    log::warn("changed in the file, but needs a restart: " + joined(changes->later));
}

int check_reducer(const ReducerFlags& flags) {
  auto checked = flags.check();
  if (checked) checked = reducer::check_options(flags.options());
  if (!checked) throw Failure(bench::kExitConfig, failure_of(checked.error(), flags.by_file()).what());
  std::puts("the configuration is good");
  return bench::kExitOk;
}

// What ends a reducer when its sessions have gone.
constexpr Nanos kAfterDrain = 10 * kSecond;

// Whether the conductor answers within `patience`, and every lane has turned in the last second. Well again
// as soon as all of them have, whatever was said before.
std::function<bool()> lanes_turn(reducer::Reducer& server, Nanos patience) {
  return [&server, patience, before = std::vector<uint64_t>(), at = Nanos{0}, well = true]() mutable {
    auto now = server.turns(patience);
    if (!now) return false;
    bool all = true;
    for (size_t i = 0; i < before.size(); ++i) all = all && (*now)[i] != before[i];
    if (all) {
      before = std::move(*now);
      at = monotonic_now();
      well = true;
    } else if (monotonic_now() - at >= kSecond) {
      well = false;
    }
    return well;
  };
}

// Waits for the reducer's end in a thread. Where nobody waits any more, that is made to come.
class Waiter {
 public:
  Waiter(reducer::Reducer& server, int ended_fd)
      : server_(server), thread_([this, ended_fd] {
          reason_ = server_.wait();
          eventfd_write(ended_fd, 1);
        }) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() {
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
  std::thread thread_;  // the last: it uses the others
};

// Whatever is wrong with a file must not end the sessions of those that are served.
void hang_up(const std::function<void()>& on_hang_up) {
  try {
    on_hang_up();
  } catch (const std::exception& e) {
    log::error(std::string("nothing is changed by SIGHUP: ") + e.what());
  }
}

// Serves until the reducer has ended, by itself or by signals. Returns the exit code.
int serve(reducer::Reducer& server, const Supervisor& supervisor, const StopSignals& signals,
          Nanos drain_timeout, const std::function<void()>& on_hang_up) {
  const transport::tcp::Socket ended(eventfd(0, EFD_CLOEXEC));
  Waiter waiter(server, ended.fd());
  std::optional<Watchdog> watchdog(std::in_place, supervisor,
                                   lanes_turn(server, std::min(kSecond, supervisor.watchdog_period() / 4)));
  int code = bench::kExitOk;
  for (int stops_seen = 0;;) {
    const int number = signals.wait(ended.fd());
    if (number == 0) break;
    if (number == SIGHUP) {
      hang_up(on_hang_up);
    } else if (++stops_seen == 1) {
      // A drain is not to be cut short by the manager's own limit, whichever is longer.
      supervisor.tell(fmt::format("STOPPING=1\nSTATUS=drains\nEXTEND_TIMEOUT_USEC={}",
                                  (drain_timeout + kAfterDrain) / kMicrosecond));
      server.drain();
    } else {
      code = 128 + number;
      server.stop();
    }
  }
  watchdog.reset();  // lanes have ended, and stand still rightly
  const reducer::ExitReason reason = waiter.join();
  say_ended(server, reason);
  return reason == reducer::ExitReason::kNeverCame && code == bench::kExitOk ? bench::kExitTryAgain : code;
}

int run_reducer(const ReducerFlags& flags, const LogFlags& log) {
  if (flags.by_file().check) return check_reducer(flags);
  // Whoever reads the log may end before the reducer does: a line that nobody takes is lost, not the
  // sessions.
  (void)std::signal(SIGPIPE, SIG_IGN);
  if (const auto checked = flags.check(); !checked) throw failure_of(checked.error(), flags.by_file());
  const reducer::ReducerOptions options = flags.options();
  if (!options.key_file.empty())
    (void)bench::value_or_fail(config::read_secret_file(options.key_file), bench::kExitConfig);

  const Supervisor supervisor;
  const StopSignals signals;
  auto started = reducer::Reducer::start(options);
  if (!started) throw failure_of(started.error(), flags.by_file());
  reducer::Reducer& server = **started;
  say_started(server, options);
  if (!flags.port_file().empty()) {
    if (auto written = bench::write_port_file(flags.port_file(), server.port()); !written) {
      throw Failure(bench::kExitFailure, written.error().text);
    }
  }
  if (options.http && !flags.http_port_file().empty()) {
    if (auto written = bench::write_port_file(flags.http_port_file(), server.http_port()); !written)
      throw Failure(bench::kExitFailure, written.error().text);
  }
  supervisor.tell(fmt::format("READY=1\nSTATUS=listens on port {}", server.port()));
  return serve(server, supervisor, signals, options.drain_timeout, [&] { read_again(server, flags, log); });
}

}  // namespace

void add_reducer_command(CLI::App& program, Command& chosen, const LogFlags& log) {
  CLI::App* app = program.add_subcommand(
      "reducer", "run a reducer: takes contributions from workers, sends back their sums");
  app->fallthrough();  // --log-level may stand behind it as well
  app->footer(
      "SIGTERM or SIGINT: no new sessions; those that survive losses move to their other reducers, the rest "
      "are served to their end (at most --drain-timeout), exit 0.\n"
      "A second signal: everything ends now, exit 130 or 143. SIGHUP: the file and certificates are read "
      "again, and "
      "what is marked [SIGHUP] changes.\n"
      "Port in use: exit 75. Key unreadable, or a wrong variable or file: exit 78.\n"
      "With --mode job: exit 0 when the expected ranks have come and gone, 75 when they never came.");
  auto flags = std::make_shared<ReducerFlags>();
  OptionSet set(*app);
  flags->add_to(set);
  app->callback([flags, &chosen, &log] { chosen = [flags, &log] { return run_reducer(*flags, log); }; });
}

}  // namespace sluice::cli
