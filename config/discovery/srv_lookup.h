// Asks name servers for SRV records, with a deadline that holds whatever they do.
#pragma once

#include <string>
#include <vector>

#include "config/discovery/resolv_conf.h"
#include "config/discovery/surroundings.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::config::discovery {

// The records of the first of candidates(name) that has any. Over UDP, over TCP where the answer was cut.
// Each server is waited for 1 s at a time, and all of them are asked twice before the next candidate. Errors:
// kTimeout when nobody answered, kUnsupported when there are no such records or a server refuses (the text
// says which), kInvalidArgument when `name` is none. Blocks; `deadline` by monotonic_now().
[[nodiscard]] Result<std::vector<SrvRecord>> look_up_srv(const std::string& name, const ResolvConf& conf,
                                                         Nanos deadline);

}  // namespace sluice::config::discovery
