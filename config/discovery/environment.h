// Defines everything that discovery may read, as functions: variables, files, the host name, DNS and the
// clock. Tests provide a table of cases instead, and a caller that must not use the network leaves DNS out.
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

// Limit of a file or variable that a platform provides.
inline constexpr size_t kMaxFile = kMiB;

struct SrvRecord {
  std::string target;  // without the trailing dot
  uint16_t port = 0;
  friend bool operator==(const SrvRecord&, const SrvRecord&) = default;
};

struct Environment {
  // Returns nothing when the variable is not set or empty.
  std::function<std::optional<std::string>(std::string_view name)> variable;
  // Returns nothing when the file does not exist, kSystem when it cannot be read, kInvalidArgument when it is
  // longer than kMaxFile or not a regular file.
  std::function<Result<std::optional<std::string>>(const std::string& path)> read_file;
  std::function<std::string()> host_name;
  std::function<std::vector<std::string>()> addresses;  // of the interfaces of this host; null: unknown
  // Returns the SRV records of a name, in no particular order; `deadline` is compared with now(). Null: the
  // network must not be used. Returns kTimeout when no server answered, and kUnsupported or another code when
  // a server reports that there are none.
  std::function<Result<std::vector<SrvRecord>>(const std::string& name, Nanos deadline)> resolve_srv;
  std::function<Nanos()> now;
  std::function<void(Nanos)> sleep;
};

// Returns the environment of this process, including the network. `environment` ("NAME=value", ended by null)
// is copied at once, because another thread may set a variable during a DNS query.
[[nodiscard]] Environment process_environment(const char* const* environment);

}  // namespace sluice::config::discovery
