#include "tests/conformance/transport/rdma_test_bed.h"

#include <cstdlib>
#include <span>
#include <stdexcept>

#include "transport/rdma/pairing.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {

SocketPair connected_rdma_pair(const std::string& one, const std::string& other,
                               const rdma::PairMemory& memory, const rdma::PairMemory& other_memory) {
  auto [near, far] = tcp_pair(one, other);
  const auto offer = [](const tcp::Socket& s, const rdma::PairMemory& m) {
    auto offered = rdma::offer_pair(rdma::connection_gids(s.fd()), {}, m);
    if (!offered) throw std::runtime_error(offered.error().text);
    return std::move(*offered);
  };
  rdma::PairOffer a = offer(near, memory), b = offer(far, other_memory);
  for (const auto& done :
       {rdma::connect_pair(*a.pair, rdma::connection_gids(near.fd()), std::as_bytes(std::span(b.address))),
        rdma::connect_pair(*b.pair, rdma::connection_gids(far.fd()), std::as_bytes(std::span(a.address)))})
    if (!done) throw std::runtime_error(done.error().text);
  near.attach_channel(std::move(a.pair));
  far.attach_channel(std::move(b.pair));
  return {std::move(near), std::move(far)};
}

std::pair<std::string, std::string> rdma_addresses() {
  const char* const both = std::getenv("SLUICE_TEST_RDMA");
  const std::string text = both == nullptr ? "" : both;
  const size_t comma = text.find(',');
  if (comma == std::string::npos)
    throw std::runtime_error("SLUICE_TEST_RDMA: expected two comma-separated addresses");
  return {text.substr(0, comma), text.substr(comma + 1)};
}

TransportTestBed make_rdma_test_bed() {
  TransportTestBed test_bed;
  const auto [one, other] = rdma_addresses();
  auto a = rdma::make_context();
  auto b = rdma::make_context();
  if (!a || !b) throw std::runtime_error("cannot create an RDMA context");
  // Both ends share one Memory, because they are in one process.
  const auto memory = rdma::Memory::make();
  test_bed.register_memory = [memory](std::span<std::byte> bytes) -> std::shared_ptr<void> {
    return std::make_shared<rdma::ScopedRegistration>(memory, bytes, rdma::Memory::Use::kSendAndAdvertise);
  };
  test_bed.connect = [one = one, other = other, memory, pa = a->get(), pb = b->get()](
                         Handler& ha, Handler& hb, const EndpointOptions& o) {
    return adopt_pair(connected_rdma_pair(one, other, {.memory = memory}, {.memory = memory}), *pa, ha, *pb,
                      hb, o);
  };
  test_bed.a = std::move(*a);
  test_bed.b = std::move(*b);
  return test_bed;
}

}  // namespace sluice::transport::test
