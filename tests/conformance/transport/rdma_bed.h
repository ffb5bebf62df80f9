#pragma once

#include "tests/conformance/transport/bed.h"

namespace sluice::transport::test {

// SLUICE_TEST_RDMA: addresses of this machine that RDMA devices have, of one or of two that are wired
// together. Throws without.
[[nodiscard]] std::pair<std::string, std::string> rdma_addresses();

// Between them.
[[nodiscard]] Bed rdma_bed();

}  // namespace sluice::transport::test
