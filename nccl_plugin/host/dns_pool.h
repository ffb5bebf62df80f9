#pragma once

#include <vector>

#include "config/endpoints.h"
#include "core/result.h"

namespace sluice::nccl {

// Resolves the reducers of SLUICE_REDUCER_SERVICE by DNS. The first successful result is kept: the nodes
// compare their lists, and later communicators must not wait again. Until then each call asks again, because
// reducers may start after the first communicator. Blocks for SLUICE_DISCOVERY_TIMEOUT at most. Any thread.
[[nodiscard]] Result<std::vector<config::Endpoint>> resolve_dns_pool();

}  // namespace sluice::nccl
