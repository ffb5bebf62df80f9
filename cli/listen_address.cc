#include "cli/listen_address.h"

#include <fmt/format.h>

#include "bench/e2e/exit_codes.h"

namespace sluice::cli {

ListenAddress parse_listen(const std::string& text, const char* option, uint16_t default_port) {
  const bool all = !text.empty() && (text.front() == '*' || text.front() == ':');
  const size_t colon = text.rfind(':');
  // Port 0 (the OS chooses) is no port of a list of reducers, so it is taken off first.
  const bool any_port = colon != std::string::npos && text.substr(colon) == ":0";
  std::string rest = all ? "all" + (colon == std::string::npos ? "" : text.substr(colon)) : text;
  if (any_port) rest.resize(rest.size() - 2);
  auto parsed = config::parse_endpoints(rest);
  if (!parsed || parsed->size() != 1 || parsed->front().weight != 1) {
    throw bench::Failure(bench::kExitUsage, fmt::format("{} \"{}\" is not HOST:PORT", option, text));
  }
  const bool no_port = colon == std::string::npos || text.back() == ']';
  return {.host = all ? "" : parsed->front().host,
          .port = any_port  ? uint16_t{0}
                  : no_port ? default_port
                            : parsed->front().port};
}

}  // namespace sluice::cli
