// Implements `sluice check health`: queries a reducer's HTTP health endpoint, for probes in images without a
// shell and curl.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "cli/commands/commands.h"
#include "cli/options/listen_address.h"
#include "cli/options/option_set.h"
#include "config/printable_text.h"
#include "reducer/admin/http_get.h"

namespace sluice::cli {
namespace {

struct HealthFlags {
  std::string http;
  std::string path = "/readyz";
  Nanos timeout = 3 * kSecond;
};

// Returns the first line without control characters, because it is printed to a terminal.
std::string first_line(const std::string& body) {
  return config::printable(body.substr(0, std::min<size_t>(body.find('\n'), 200)), 200);
}

// A container that sets SLUICE_HTTP_LISTEN for its reducer needs no option for the probe.
std::string default_address() {
  const char* const listen = std::getenv("SLUICE_HTTP_LISTEN");
  return listen != nullptr && *listen != '\0' ? listen : fmt::format("127.0.0.1:{}", kHttpPort);
}

int run_health(const HealthFlags& flags) {
  const ListenAddress at = require_listen_address(flags.http, "--http", kHttpPort);
  if (at.port == 0 || flags.path.empty() || flags.path.front() != '/')
    throw bench::Failure(bench::kExitUsage,
                         "expected --http HOST:PORT with a port other than 0, and --path /PATH");
  // A reducer that listens on all addresses also listens on loopback.
  const auto reply =
      reducer::admin::http_get(at.host.empty() ? "127.0.0.1" : at.host, at.port, flags.path, flags.timeout);
  if (!reply) throw bench::Failure(bench::kExitUnavailable, reply.error().text);
  if (reply->status != 200) {
    throw bench::Failure(bench::kExitUnavailable,
                         fmt::format("{}{}: HTTP status {}: {}", flags.http, flags.path, reply->status,
                                     first_line(reply->body)));
  }
  std::puts(first_line(reply->body).c_str());
  return bench::kExitOk;
}

}  // namespace

void add_check_health_command(CLI::App& check, Command& chosen) {
  CLI::App* app = check.add_subcommand("health", "check over HTTP that a reducer accepts sessions");
  app->footer("Exit 0: the reducer accepts sessions. 69: it does not, is draining, or does not answer.");
  auto flags = std::make_shared<HealthFlags>();
  flags->http = default_address();
  OptionSet set(*app);
  set.text(
      "--http", flags->http, "HOST:PORT",
      "address of the reducer's --http-listen; default: SLUICE_HTTP_LISTEN, otherwise port 9470 of loopback");
  set.text("--path", flags->path, "PATH", "endpoint to query: /readyz, /livez or /startupz");
  set.duration("--timeout", flags->timeout, "time limit for the reply");
  run_when_selected(*app, chosen, flags, run_health);
}

}  // namespace sluice::cli
