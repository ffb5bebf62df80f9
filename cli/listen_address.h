// --listen HOST:PORT of every command that listens.
#pragma once

#include <cstdint>
#include <string>

#include "config/endpoints.h"

namespace sluice::cli {

struct ListenAddress {
  std::string host;   // empty: all addresses
  uint16_t port = 0;  // 0: chosen by the OS
};

// "host:port"; "*:7470" and ":7470" are all addresses. Without a port it is `default_port`. Throws
// Failure(kExitUsage), naming `option`.
[[nodiscard]] ListenAddress parse_listen(const std::string& text, const char* option = "--listen",
                                         uint16_t default_port = config::kDefaultPort);

}  // namespace sluice::cli
