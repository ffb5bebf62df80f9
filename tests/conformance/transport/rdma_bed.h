#pragma once

#include "tests/conformance/transport/bed.h"
#include "transport/rdma/memory.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::test {

// SLUICE_TEST_RDMA: addresses of this machine that RDMA devices have, of one or of two that are wired
// together. Throws without.
[[nodiscard]] std::pair<std::string, std::string> rdma_addresses();

// A connection between two such addresses that has a queue pair, both ends. Throws where they can't be
// joined.
[[nodiscard]] std::pair<tcp::Socket, tcp::Socket> joined(const std::string& one, const std::string& other,
                                                         const rdma::PairMemory& memory = {},
                                                         const rdma::PairMemory& other_memory = {});

// Between rdma_addresses().
[[nodiscard]] Bed rdma_bed();

}  // namespace sluice::transport::test
