// --listen HOST:PORT of every command that listens.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::cli {

struct ListenAddress {
  std::string host;   // empty: all addresses
  uint16_t port = 0;  // 0: chosen by the OS
};

// "host:port"; "*:7470" and ":7470" are all addresses. Throws Failure(kExitUsage).
[[nodiscard]] ListenAddress parse_listen(const std::string& text);

}  // namespace sluice::cli
