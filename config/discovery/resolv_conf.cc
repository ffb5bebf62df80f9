#include "config/discovery/resolv_conf.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "config/endpoints.h"

namespace sluice::config::discovery {
namespace {

constexpr size_t kMostServers = 3;  // MAXNS of the C library
constexpr size_t kMostDomains = 32;
constexpr unsigned kMostDots = 15;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == '#' || line[begin] == ';') return words;
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

bool is_literal(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  // A link-local address may have its interface behind a '%'.
  return inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), address.data()) == 1;
}

void take_options(const std::vector<std::string_view>& words, ResolvConf& conf) {
  constexpr std::string_view kDots = "ndots:";
  for (const std::string_view word : words) {
    if (!word.starts_with(kDots)) continue;
    unsigned n = 0;
    std::from_chars(word.data() + kDots.size(), word.data() + word.size(), n);
    conf.ndots = std::min(n, kMostDots);
  }
}

}  // namespace

ResolvConf parse_resolv_conf(std::string_view text) {
  ResolvConf conf;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.size() < 2) continue;
    if (words[0] == "nameserver" && conf.servers.size() < kMostServers) {
      if (std::string address(words[1]); is_literal(address))
        conf.servers.push_back({.address = std::move(address)});
    } else if (words[0] == "search" || words[0] == "domain") {  // the last one counts
      conf.search.assign(words.begin() + 1, words.end());
      if (conf.search.size() > kMostDomains) conf.search.resize(kMostDomains);
    } else if (words[0] == "options") {
      take_options(words, conf);
    }
  }
  if (conf.servers.empty()) conf.servers.push_back({.address = "127.0.0.1"});
  return conf;
}

Result<NameServer> parse_name_server(std::string_view text) {
  std::vector<Endpoint> list;
  if (auto added = add_endpoint(text, "", list); !added) return tl::unexpected(added.error());
  const Endpoint& e = list.front();
  if (!is_literal(e.host))
    return fail(Errc::kInvalidArgument, "\"" + e.host + "\" is no address: a name server has to be one");
  const bool has_port =
      text.find_last_of(':') != text.npos && (text.find('[') == text.npos || text.find("]:") != text.npos);
  return NameServer{.address = e.host, .port = has_port ? e.port : uint16_t{53}};
}

std::vector<std::string> candidates(const std::string& name, const ResolvConf& conf) {
  if (name.ends_with('.')) return {name.substr(0, name.size() - 1)};
  std::vector<std::string> out;
  for (const std::string& domain : conf.search) {
    std::string whole = name + "." + domain;
    while (whole.ends_with('.')) whole.pop_back();
    out.push_back(std::move(whole));
  }
  const auto dots = static_cast<unsigned>(std::ranges::count(name, '.'));
  out.insert(dots >= conf.ndots ? out.begin() : out.end(), name);
  return out;
}

}  // namespace sluice::config::discovery
