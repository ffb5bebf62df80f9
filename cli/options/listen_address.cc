#include "cli/options/listen_address.h"

#include <fmt/format.h>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::cli {

Result<ListenAddress> parse_listen_address(const std::string& text, uint16_t default_port) {
  const bool all = !text.empty() && (text.front() == '*' || text.front() == ':');
  const size_t colon = text.rfind(':');
  // parse_endpoints() rejects port 0 (chosen by the OS), so it is removed first.
  const bool any_port = colon != std::string::npos && text.substr(colon) == ":0";
  std::string rest = all ? "all" + (colon == std::string::npos ? "" : text.substr(colon)) : text;
  if (any_port) rest.resize(rest.size() - 2);
  auto parsed = config::parse_endpoints(rest);
  if (!parsed || parsed->size() != 1 || parsed->front().weight != 1) return invalid("expected HOST:PORT");
  const bool no_port = colon == std::string::npos || text.back() == ']';
  return ListenAddress{.host = all ? "" : parsed->front().host,
                       .port = any_port  ? uint16_t{0}
                               : no_port ? default_port
                                         : parsed->front().port};
}

std::string listen_address_error(const std::string& text) {
  const auto parsed = parse_listen_address(text);
  return parsed ? std::string() : parsed.error().text;
}

ListenAddress require_listen_address(const std::string& text, const char* option, uint16_t default_port) {
  auto parsed = parse_listen_address(text, default_port);
  if (!parsed)
    throw bench::Failure(bench::kExitUsage, fmt::format("{} {}: {}", option, text, parsed.error().text));
  return *parsed;
}

}  // namespace sluice::cli
