#pragma once

#include "tests/conformance/transport/bed.h"

namespace sluice::transport::test {

// Two IPv4 addresses of one device. Throws where there are none.
[[nodiscard]] std::pair<std::string, std::string> rdma_addresses();

// Over the first device with two IPv4 addresses, one for each end.
[[nodiscard]] Bed rdma_bed();

}  // namespace sluice::transport::test
