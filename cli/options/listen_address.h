// Parses --listen HOST:PORT for every command that listens.
#pragma once

#include <cstdint>
#include <string>

#include "config/endpoints.h"
#include "core/result.h"

namespace sluice::cli {

inline constexpr uint16_t kHttpPort = 9470;  // default port of --http-listen

struct ListenAddress {
  std::string host;   // empty: all addresses
  uint16_t port = 0;  // 0: chosen by the OS
};

// Parses "host:port"; "*:7470" and ":7470" mean all addresses. Without a port the result has `default_port`.
// Returns kInvalidArgument.
[[nodiscard]] Result<ListenAddress> parse_listen_address(const std::string& text,
                                                         uint16_t default_port = config::kDefaultPort);

// Returns the error of parse_listen_address(), or an empty string: the check of a declared option.
[[nodiscard]] std::string listen_address_error(const std::string& text);

// Like parse_listen_address(), but throws Failure(kExitUsage) with the name of the option.
[[nodiscard]] ListenAddress require_listen_address(const std::string& text, const char* option = "--listen",
                                                   uint16_t default_port = config::kDefaultPort);

}  // namespace sluice::cli
