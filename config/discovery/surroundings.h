// All that discovery may look at: variables, files, the host's name, the DNS and the clock, as functions. So
// a table of cases needs no real environment, and a caller that must not touch the network leaves it out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace sluice::config::discovery {

// What a platform says in one file; more is no such file.
inline constexpr size_t kMaxFile = kMiB;

struct SrvRecord {
  std::string target;  // without the dot at its end
  uint16_t port = 0;
  friend bool operator==(const SrvRecord&, const SrvRecord&) = default;
};

struct Surroundings {
  // Nothing where it is not set; empty counts as not set.
  std::function<std::optional<std::string>(std::string_view name)> variable;
  // Nothing where there is no such file; kSystem when it can't be read, kInvalidArgument when it is longer
  // than kMaxFile, or no regular file.
  std::function<Result<std::optional<std::string>>(const std::string& path)> read_file;
  std::function<std::string()> host_name;
  // The SRV records of a name, in no order, until a moment of now(). Null: nobody may ask the network.
  // kTimeout when no server answered, kUnsupported (and other codes) when one says that there is nothing.
  std::function<Result<std::vector<SrvRecord>>(const std::string& name, Nanos deadline)> look_up;
  std::function<Nanos()> now;
  std::function<void(Nanos)> pause;
};

// This process's own, the network included. `environment` ("NAME=value", ended by null) is copied at once:
// another thread of the process may set a variable while a server is waited for.
[[nodiscard]] Surroundings process_surroundings(const char* const* environment);

}  // namespace sluice::config::discovery
