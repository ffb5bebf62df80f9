// The reducers of SLUICE_REDUCER_SERVICE, by the DNS.
#pragma once

#include <vector>

#include "config/endpoints.h"
#include "core/result.h"

namespace sluice::nccl {

// Once found they stay: the nodes compare what they got, and communicators that are made later must not wait
// again. Until then each communicator asks; reducers may come up later than the first of them. Blocks the
// caller for SLUICE_DISCOVERY_TIMEOUT at most. Any thread.
[[nodiscard]] Result<std::vector<config::Endpoint>> pool_by_dns();

}  // namespace sluice::nccl
