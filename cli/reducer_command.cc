// `sluice reducer`: runs a reducer until it is drained or stopped.
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
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
#include "cli/http_options.h"
#include "cli/listen_address.h"
#include "cli/option_set.h"
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

struct ReducerFlags {
  reducer::ReducerOptions options;
  std::string listen = "127.0.0.1:7470";
  uint64_t max_slot = 0;
  uint64_t socket_buffer = 0;
  std::string idle = "epoll";
  bool no_crc = false;
  bool anywhere = false;
  std::string tls = "off";
  std::string transport = "auto";
  std::string port_file;
  std::string http_listen;
  std::string http_port_file;
  std::vector<std::string> weights;
  std::string mode = "service";
};

// "acme=3"; a tenant's name may hold a '='.
std::pair<std::string, uint32_t> parse_weight(const std::string& text) {
  const size_t at = text.rfind('=');
  uint32_t weight = 0;
  const char* const end = text.data() + text.size();
  if (at == std::string::npos || at == 0 || std::from_chars(text.data() + at + 1, end, weight).ptr != end ||
      at + 1 == text.size()) {
    throw Failure(bench::kExitUsage, fmt::format("--weight {}: TENANT=N is wanted", text));
  }
  return {text.substr(0, at), weight};
}

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
bench::ExitCode exit_code_of(const Error& error) {
  if (error.code == Errc::kInvalidArgument) return bench::kExitUsage;
  return error.text.find("in use") != std::string::npos ? bench::kExitTryAgain : bench::kExitFailure;
}

// What ends a reducer when its sessions have gone.
constexpr Nanos kAfterDrain = 10 * kSecond;

// Whether the conductor answers, and every lane had turned when it was last looked at, at most once a second.
std::function<bool()> lanes_turn(reducer::Reducer& server) {
  return [&server, before = std::vector<uint64_t>(), at = Nanos{0}, well = true]() mutable {
    std::vector<uint64_t> now = server.turns();
    if (monotonic_now() - at < kSecond) return well;
    well = true;
    for (size_t i = 0; i < before.size(); ++i) well = well && now[i] != before[i];
    before = std::move(now);
    at = monotonic_now();
    return well;
  };
}

int run_reducer(ReducerFlags flags) {
  // Whoever reads the log may end before the reducer does: a line that nobody takes is lost, not the
  // sessions.
  (void)std::signal(SIGPIPE, SIG_IGN);
  reducer::ReducerOptions& options = flags.options;
  const ListenAddress address = parse_listen(flags.listen);
  options.listen_host = address.host;
  options.listen_port = address.port;
  options.max_slot_bytes = static_cast<uint32_t>(std::min<uint64_t>(flags.max_slot, UINT32_MAX));
  options.socket_buffer = flags.socket_buffer;
  for (const std::string& text : flags.weights) {
    const auto [tenant, weight] = parse_weight(text);
    options.weights.insert_or_assign(tenant, weight);
  }
  options.payload_crc = !flags.no_crc;
  options.near_devices = !flags.anywhere;
  options.tls = flags.tls == "require" ? reducer::TlsMode::kRequire
                : flags.tls == "on"    ? reducer::TlsMode::kOn
                                       : reducer::TlsMode::kOff;
  options.transport = bench::value_or_fail(config::parse_lane_transport(flags.transport), bench::kExitUsage);
  options.idle = flags.idle == "spin"    ? reducer::Idle::kSpin
                 : flags.idle == "yield" ? reducer::Idle::kYield
                                         : reducer::Idle::kEpoll;
  if (flags.mode == "service") {
    options.expected_workers = 0;
  } else if (options.expected_workers == 0) {
    throw Failure(bench::kExitUsage, "--mode job needs --expected-workers");
  }
  if (!flags.http_listen.empty()) options.http = http_options(flags.http_listen);
  if (!options.key_file.empty())
    (void)bench::value_or_fail(config::read_secret_file(options.key_file), bench::kExitConfig);

  const Supervisor supervisor;
  const StopSignals signals;
  auto started = reducer::Reducer::start(options);
  if (!started) throw Failure(exit_code_of(started.error()), started.error().text);
  reducer::Reducer& server = **started;
  say_started(server, options);
  if (!flags.port_file.empty()) {
    if (auto written = bench::write_port_file(flags.port_file, server.port()); !written) {
      throw Failure(bench::kExitFailure, written.error().text);
    }
  }

  if (options.http && !flags.http_port_file.empty()) {
    if (auto written = bench::write_port_file(flags.http_port_file, server.http_port()); !written)
      throw Failure(bench::kExitFailure, written.error().text);
  }
  supervisor.tell(fmt::format("READY=1\nSTATUS=listens on port {}", server.port()));

  const transport::tcp::Socket ended(eventfd(0, EFD_CLOEXEC));
  reducer::ExitReason reason = reducer::ExitReason::kDrained;
  std::thread waiter([&server, &ended, &reason] {
    reason = server.wait();
    eventfd_write(ended.fd(), 1);
  });
  std::optional<Watchdog> watchdog(std::in_place, supervisor, lanes_turn(server));
  int code = bench::kExitOk;
  for (int signals_seen = 0;;) {
    const int number = signals.wait(ended.fd());
    if (number == 0) break;
    if (++signals_seen == 1) {
      // A drain is not to be cut short by the manager's own limit, whichever is longer.
      supervisor.tell(fmt::format("STOPPING=1\nSTATUS=drains\nEXTEND_TIMEOUT_USEC={}",
                                  (options.drain_timeout + kAfterDrain) / kMicrosecond));
      server.drain();
    } else {
      code = 128 + number;
      server.stop();
    }
  }
  watchdog.reset();  // lanes have ended, and stand still rightly
  waiter.join();
  say_ended(server, reason);
  return reason == reducer::ExitReason::kNeverCame && code == bench::kExitOk ? bench::kExitTryAgain : code;
}

}  // namespace

void add_reducer_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "reducer", "run a reducer: takes contributions from workers, sends back their sums");
  app->footer(
      "SIGTERM or SIGINT: no new sessions; those that survive losses move to their other reducers, the rest "
      "are served to their end (at most --drain-timeout), exit 0.\n"
      "A second signal: everything ends now, exit 130 or 143. Port in use: exit 75. Key unreadable: exit "
      "78.\n"
      "With --mode job: exit 0 when the expected ranks have come and gone, 75 when they never came.");
  auto flags = std::make_shared<ReducerFlags>();
  reducer::ReducerOptions& o = flags->options;
  flags->max_slot = o.max_slot_bytes;
  flags->socket_buffer = o.socket_buffer;

  OptionSet set(*app);
  set.group("Address");
  set.text("--listen", flags->listen, "HOST:PORT",
           "address to listen on; *:PORT is all addresses, port 0 is chosen by the OS");
  set.text("--port-file", flags->port_file, "FILE", "write the bound port here once it accepts");
  set.text("--http-listen", flags->http_listen, "HOST:PORT",
           "serve health, metrics, status and a page there, to everybody who can reach it; none: not served");
  set.text("--http-port-file", flags->http_port_file, "FILE", "write the port of --http-listen here");
  set.group("Life");
  set.text("--mode", flags->mode, "HOW",
           "service: until it is told to end; job: until one job is over, for platforms that wait for every "
           "host of a job")
      ->check(CLI::IsMember({"service", "job"}));
  set.number("--expected-workers", o.expected_workers,
             "with --mode job: ranks that must have been here at a time before the job can be over");
  set.duration("--arrival-timeout", o.arrival_timeout,
               "with --mode job: until they must have come; 0: however late");
  set.duration("--idle-timeout", o.idle_timeout,
               "with --mode job: how long there must be no session before the job counts as over");
  set.group("Capacity");
  set.number("--lanes", o.lanes, "lane threads; 0: one per CPU");
  set.number("--lanes-per-session", o.lanes_per_session,
             "connections that each rank of a session is offered, at most --lanes");
  set.size("--memory-limit", o.memory_limit,
           "bytes that sessions may reserve; 0: half of the machine's memory");
  set.size("--session-memory-limit", o.session_memory_limit, "of that, for one session; 0: as much");
  set.size("--tenant-memory-limit", o.tenant_memory_limit,
           "of that, for all sessions of one tenant; 0: as much");
  set.size("--max-slot", flags->max_slot, "largest slot, hence chunk, that a session may ask for");
  set.number(
      "--max-connections", o.max_connections,
      "handshakes and control connections at a time; more are closed at once. Connections of lanes that are "
      "attached do not count");
  set.group("Shares");
  set.list("--weight", flags->weights,
           "TENANT=N,...: of what is too little for all, N parts (1 to 100) for this tenant's sessions; a "
           "client "
           "that names no tenant counts as one of its job's name")
      ->take_all()
      ->group("Shares");
  set.number("--default-weight", o.default_weight, "parts of every other tenant");
  set.flag("--tenant-is-job", o.tenant_is_job,
           "what clients call their tenant does not count; their job, which the token proves, does");
  set.group("Security");
  set.text("--key-file", o.key_file, "FILE",
           "pool key (sluice keygen): every connection must prove its job's token");
  set.flag("--insecure", o.insecure, "listen off loopback without a key");
  set.text("--tls", flags->tls, "MODE",
           "off; on: for workers that offer it; require: for workers that offer it, and no others are served")
      ->check(CLI::IsMember({"off", "on", "require"}));
  set.text("--tls-cert", o.tls_files.certificate, "FILE",
           "certificate to be known by, PEM with its chain; without one the job's token proves both sides");
  set.text("--tls-key", o.tls_files.key, "FILE", "its private key; none: in the same file");
  set.text("--tls-client-ca", o.tls_files.ca, "FILE", "workers must show a certificate of this authority");
  set.group("Speed");
  set.text(
         "--transport", flags->transport, "HOW",
         "what lanes go over: auto, RDMA where both ends have it; tcp; rdma, and no lane is served otherwise")
      ->check(CLI::IsMember({"auto", "tcp", "rdma"}));
  set.text("--ib-hca", o.rdma_devices, "LIST",
           "RDMA devices that may be used: mlx5_0,mlx5_1:2 (prefixes, port), =mlx5_0 exactly, ^mlx5_3 all "
           "but these");
  set.number("--ib-gid-index", o.rdma_gid_index,
             "the one entry of a port's address table that may be used; -1: any that has the connection's "
             "address")
      ->check(CLI::Range(-1, 255));
  set.number("--ib-tc", o.rdma_traffic_class,
             "traffic class of RoCE's packets, 0 to 255: their DSCP times 4")
      ->default_str("0");  // not as the character that a byte is
  set.flag("--anywhere", flags->anywhere,
           "run on all processors, not only those of the NUMA node that the RDMA devices are at");
  set.text("--idle", flags->idle, "HOW", "what a lane without work does: epoll, yield, spin")
      ->check(CLI::IsMember({"epoll", "yield", "spin"}));
  set.duration("--spin", o.spin, "how long it polls before it sleeps, with --idle epoll");
  set.flag("--no-crc", flags->no_crc, "put no checksum on results");
  set.size("--socket-buffer", flags->socket_buffer,
           "send and receive buffer of each socket; 0: leave to the kernel");
  set.text("--congestion-control", o.congestion_control, "NAME", "TCP congestion control; none: the host's");
  set.group("Deadlines");
  set.duration("--handshake-timeout", o.handshake_timeout, "from accept to the end of the handshake");
  set.duration("--frame-timeout", o.frame_timeout, "between pieces of a frame once begun");
  set.duration("--heartbeat", o.heartbeat, "between heartbeats");
  set.duration("--peer-timeout", o.peer_timeout,
               "silence after which a rank is lost, or, of a session that survives losses, cut off");
  set.duration("--absence-timeout", o.absence_timeout,
               "of a session that survives losses: how long a rank may lack a connection before it is lost");
  set.duration("--join-timeout", o.join_timeout, "most that ranks may ask to wait for each other");
  set.duration("--linger-timeout", o.linger_timeout,
               "most that a leaving rank waits for the others' results");
  set.duration("--drain-timeout", o.drain_timeout, "most that sessions may go on after SIGTERM");
  app->callback([flags, &chosen] { chosen = [flags] { return run_reducer(*flags); }; });
}

}  // namespace sluice::cli
