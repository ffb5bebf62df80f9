// `sluice check health`: asks a reducer's HTTP port whether it takes sessions, for probes in images that have
// neither a shell nor curl.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench/e2e/exit_codes.h"
#include "cli/check_health.h"
#include "cli/http_options.h"
#include "cli/listen_address.h"
#include "cli/option_set.h"
#include "reducer/admin/http_get.h"

namespace sluice::cli {
namespace {

struct HealthFlags {
  std::string http;
  std::string path = "/readyz";
  Nanos timeout = 3 * kSecond;
};

// A line from the network, on a terminal.
std::string first_line(const std::string& body) {
  std::string line = body.substr(0, std::min<size_t>(body.find('\n'), 200));
  for (char& c : line) {
    if (c < ' ' || c > '~') c = '?';
  }
  return line;
}

// In a container that is told by a variable where its reducer listens, the probe needs no option.
std::string default_address() {
  const char* const listens = std::getenv("SLUICE_HTTP_LISTEN");
  return listens != nullptr && *listens != '\0' ? listens : fmt::format("127.0.0.1:{}", kHttpPort);
}

int run_health(const HealthFlags& flags) {
  const ListenAddress at = parse_listen(flags.http, "--http", kHttpPort);
  if (at.port == 0 || flags.path.empty() || flags.path.front() != '/')
    throw bench::Failure(bench::kExitUsage, "--http HOST:PORT and --path /PATH are wanted");
  // Where it listens on all addresses it listens on this one.
  const auto reply =
      reducer::admin::http_get(at.host.empty() ? "127.0.0.1" : at.host, at.port, flags.path, flags.timeout);
  if (!reply) throw bench::Failure(bench::kExitUnavailable, reply.error().text);
  if (reply->status != 200) {
    throw bench::Failure(
        bench::kExitUnavailable,
        fmt::format("{} says {} to {}: {}", flags.http, reply->status, flags.path, first_line(reply->body)));
  }
  std::puts(first_line(reply->body).c_str());
  return bench::kExitOk;
}

}  // namespace

void add_check_health(CLI::App& check, Command& chosen) {
  CLI::App* app = check.add_subcommand("health", "ask a reducer's HTTP port whether it takes sessions");
  app->footer("Exit 0: it does. 69: it does not, is draining, or does not answer; the line says which.");
  auto flags = std::make_shared<HealthFlags>();
  flags->http = default_address();
  OptionSet set(*app);
  set.text("--http", flags->http, "HOST:PORT",
           "what the reducer was given as --http-listen; default: SLUICE_HTTP_LISTEN, else this host's 9470");
  set.text("--path", flags->path, "PATH", "what to ask: /readyz, /livez, /startupz");
  set.duration("--timeout", flags->timeout, "for the answer");
  app->callback([flags, &chosen] { chosen = [flags] { return run_health(*flags); }; });
}

}  // namespace sluice::cli
