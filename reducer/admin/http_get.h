// A blocking HTTP client for a reducer's HTTP port. Used by `sluice check health`.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/http_client.h"

namespace sluice::reducer::admin {

using transport::tcp::HttpAnswer;

// Sends GET `path` and blocks until the response, at most for `timeout` plus the time to resolve a name.
// Errors, with host and port in the text: kTimeout, kReset (no connection, or no HTTP response).
[[nodiscard]] Result<HttpAnswer> http_get(const std::string& host, uint16_t port, const std::string& path,
                                          Nanos timeout);

}  // namespace sluice::reducer::admin
