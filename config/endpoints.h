// Parses reducer lists such as "10.0.0.2:7470, reducer-b*2, [fd00::2]:7471". The order of a list is part of
// the view that all ranks of a session share (docs/reference/protocol.md section 8).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config {

inline constexpr uint16_t kDefaultPort = 7470;
inline constexpr uint16_t kMaxWeight = 1000;
inline constexpr size_t kMaxEndpoints = 1024;  // the limit of a view

struct Endpoint {
  std::string host;  // name or address; an IPv6 address has no brackets
  uint16_t port = kDefaultPort;
  uint16_t weight = 1;  // relative share of the chunks: 1..kMaxWeight
  // The name that a TLS certificate must show, when `host` is the address found for that name. Empty: `host`.
  // to_string() leaves it out.
  std::string name = {};
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Returns "10.0.0.2:7470" or "[fd00::2]:7470", with "*2" appended when the weight is not 1. The parser
// accepts this form.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

// True if the host is written as an address of this host: "localhost", 127.0.0.1, ::1. All ranks with the
// same list decide alike, which the address that a name resolves to does not ensure.
[[nodiscard]] bool is_loopback(const Endpoint& endpoint) noexcept;

// Parses one item and appends it to `list`. Returns kInvalidArgument with the reason, prefixed by `position`
// ("item 2, "). A host and port that `list` already contains is an error.
[[nodiscard]] Result<void> add_endpoint(std::string_view item, const std::string& position,
                                        std::vector<Endpoint>& list);

// Parses "host[:port][*weight],..." with optional spaces around items and at least one item. Returns
// kInvalidArgument with the item and the reason: `item 2, "b:99999": port "99999" is not in 1..65535`.
[[nodiscard]] Result<std::vector<Endpoint>> parse_endpoints(std::string_view text);

}  // namespace sluice::config
