// Lists of reducers as people write them: "10.0.0.2:7470, reducer-b*2, [fd00::2]:7471". The order matters: it
// is part of the view that all ranks of a session must share (wire/PROTOCOL.md section 8).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config {

inline constexpr uint16_t kDefaultPort = 7470;
inline constexpr uint16_t kMaxWeight = 1000;
inline constexpr size_t kMaxEndpoints = 1024;  // what a view can hold

struct Endpoint {
  std::string host;  // name or literal, IPv6 without brackets
  uint16_t port = kDefaultPort;
  uint16_t weight = 1;  // share of the chunks, relative: 1..kMaxWeight
  // Where `host` is the address that a name was found at: that name, which a certificate has to show. Empty:
  // `host` itself. No part of the text.
  std::string name = {};
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// "10.0.0.2:7470", "[fd00::2]:7470"; "*2" behind it when the weight is not 1. What the parser reads back.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

// Parses one such item and puts it behind the others of a list. kInvalidArgument says what is wrong with it,
// `place` first ("item 2, "); the same host and port twice is an error too.
[[nodiscard]] Result<void> add_endpoint(std::string_view item, const std::string& place,
                                        std::vector<Endpoint>& list);

// "host[:port][*weight],...", spaces around items tolerated. At least one item. kInvalidArgument names the
// item, its number and what is wrong: `item 2, "b:99999": port 99999 is not in 1..65535`.
[[nodiscard]] Result<std::vector<Endpoint>> parse_endpoints(std::string_view text);

}  // namespace sluice::config
