// Looks up SRV records in the DNS, with a deadline that holds whatever the name servers do.
//
// The DNS client is c-ares, because the C library's resolver can block for minutes on a server that accepts a
// TCP connection and stays silent. c-ares is linked statically, so the NCCL plugin still depends on libc
// alone.
#pragma once

#include <string>
#include <vector>

#include "config/discovery/environment.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::config::discovery {

// Returns the SRV records of `name`. resolv.conf decides the servers, the search list and ndots; `server`
// ("127.0.0.1:15353", "10.0.0.10", "[fd00::a]:53") replaces its servers unless it is empty. Queries use UDP
// with EDNS, and TCP for an answer that was truncated. Each server gets 1 s, then 2 s in a second round.
// Blocks until `deadline` (monotonic_now()) at most. Any thread.
// Errors: kTimeout when no server answered; kUnsupported when there are no such records or the servers
// reported a failure; kInvalidArgument when `name` is not a DNS name or `server` not an IP address.
[[nodiscard]] Result<std::vector<SrvRecord>> look_up_srv(const std::string& name, const std::string& server,
                                                         Nanos deadline);

}  // namespace sluice::config::discovery
