// Asks a reducer's HTTP port, for `sluice check health`.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/units.h"

namespace sluice::reducer::admin {

struct HttpReply {
  unsigned status = 0;
  std::string body;
};

// GET of `path`, on a thread's own time: at most `timeout` in all but for resolving a name. kTimeout; kReset
// when nobody answers, or not in HTTP; the text names host and port.
[[nodiscard]] Result<HttpReply> http_get(const std::string& host, uint16_t port, const std::string& path,
                                         Nanos timeout);

}  // namespace sluice::reducer::admin
