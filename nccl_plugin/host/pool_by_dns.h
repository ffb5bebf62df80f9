// The reducers of SLUICE_REDUCER_SERVICE, by the DNS.
#pragma once

#include <vector>

#include "config/endpoints.h"
#include "core/result.h"

namespace sluice::nccl {

// Asked once in a process, by the first communicator: the nodes compare what they got, and those that are
// made later must not wait again. Blocks that caller for SLUICE_DISCOVERY_TIMEOUT at most.
[[nodiscard]] const Result<std::vector<config::Endpoint>>& pool_by_dns();

}  // namespace sluice::nccl
