// --listen HOST:PORT of every command that listens.
#pragma once

#include <cstdint>
#include <string>

#include "config/endpoints.h"
#include "core/result.h"

namespace sluice::cli {

struct ListenAddress {
  std::string host;   // empty: all addresses
  uint16_t port = 0;  // 0: chosen by the OS
};

// "host:port"; "*:7470" and ":7470" are all addresses. Without a port it is `default_port`. kInvalidArgument.
[[nodiscard]] Result<ListenAddress> listen_address(const std::string& text,
                                                   uint16_t default_port = config::kDefaultPort);

// What is wrong with it, or nothing: for the declaration of an option.
[[nodiscard]] std::string wrong_listen(const std::string& text);

// The same as listen_address(). Throws Failure(kExitUsage), naming `option`.
[[nodiscard]] ListenAddress parse_listen(const std::string& text, const char* option = "--listen",
                                         uint16_t default_port = config::kDefaultPort);

}  // namespace sluice::cli
