// Whom to ask for names, and which names: what resolv.conf says (resolv.conf(5)).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config::discovery {

struct NameServer {
  std::string address;  // a literal, IPv4 or IPv6
  uint16_t port = 53;
  friend bool operator==(const NameServer&, const NameServer&) = default;
};

struct ResolvConf {
  std::vector<NameServer> servers;
  std::vector<std::string> search;
  unsigned ndots = 1;
};

// Takes what it understands; like the C library it passes over the rest. At most 3 servers and 32 domains;
// the loopback where no server is named.
[[nodiscard]] ResolvConf parse_resolv_conf(std::string_view text);

// "127.0.0.1:15353", "10.0.0.10", "[fd00::a]:53". kInvalidArgument where the host is no literal: who would
// look it up?
[[nodiscard]] Result<NameServer> parse_name_server(std::string_view text);

// The whole names that `name` may mean, in the order in which to ask for them.
[[nodiscard]] std::vector<std::string> candidates(const std::string& name, const ResolvConf& conf);

}  // namespace sluice::config::discovery
