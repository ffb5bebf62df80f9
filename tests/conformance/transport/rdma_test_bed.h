#pragma once

#include "tests/conformance/transport/transport_test_bed.h"
#include "transport/rdma/memory.h"

namespace sluice::transport::test {

// The two addresses of SLUICE_TEST_RDMA: local addresses of one RDMA device, or of two devices that are
// connected. Throws when the variable is not set.
[[nodiscard]] std::pair<std::string, std::string> rdma_addresses();

// Both ends of a connection between two such addresses, with connected queue pairs. Throws when they cannot
// be connected.
[[nodiscard]] SocketPair connected_rdma_pair(const std::string& one, const std::string& other,
                                             const rdma::PairMemory& memory = {},
                                             const rdma::PairMemory& other_memory = {});

// A test bed between rdma_addresses().
[[nodiscard]] TransportTestBed make_rdma_test_bed();

}  // namespace sluice::transport::test
