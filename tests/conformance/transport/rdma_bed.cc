#include "tests/conformance/transport/rdma_bed.h"

#include <cstdlib>
#include <span>
#include <stdexcept>

#include "transport/rdma/pairing.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {

std::pair<tcp::Socket, tcp::Socket> joined(const std::string& one, const std::string& other,
                                           const rdma::PairMemory& memory,
                                           const rdma::PairMemory& other_memory) {
  const auto [first, second] = tcp_pair(one, other);
  tcp::Socket near(first), far(second);
  const auto offer = [](const tcp::Socket& s, const rdma::PairMemory& m) {
    auto offered = rdma::offer_pair(s.fd(), {}, m);
    if (!offered) throw std::runtime_error(offered.error().text);
    return std::move(*offered);
  };
  rdma::PairOffer a = offer(near, memory), b = offer(far, other_memory);
  for (const auto& done : {rdma::join_pair(*a.pair, near.fd(), std::as_bytes(std::span(b.address))),
                           rdma::join_pair(*b.pair, far.fd(), std::as_bytes(std::span(a.address)))})
    if (!done) throw std::runtime_error(done.error().text);
  near.accompany(std::move(a.pair));
  far.accompany(std::move(b.pair));
  return {std::move(near), std::move(far)};
}

std::pair<std::string, std::string> rdma_addresses() {
  const char* const both = std::getenv("SLUICE_TEST_RDMA");
  const std::string text = both == nullptr ? "" : both;
  const size_t comma = text.find(',');
  if (comma == std::string::npos) throw std::runtime_error("SLUICE_TEST_RDMA names no two addresses");
  return {text.substr(0, comma), text.substr(comma + 1)};
}

Bed rdma_bed() {
  Bed bed;
  const auto [one, other] = rdma_addresses();
  auto a = rdma::make_context();
  auto b = rdma::make_context();
  if (!a || !b) throw std::runtime_error("no epoll");
  // Of all that both ends send and lend: as in one process, which they are.
  const auto memory = rdma::Memory::make();
  bed.know = [memory](std::span<std::byte> bytes) -> std::shared_ptr<void> {
    return std::make_shared<rdma::KnownBytes>(memory, bytes, rdma::Memory::Use::kSendAndLend);
  };
  bed.connect = [one = one, other = other, memory, pa = a->get(), pb = b->get()](Handler& ha, Handler& hb,
                                                                                 const EndpointOptions& o) {
    auto [near, far] = joined(one, other, {.memory = memory}, {.memory = memory});
    auto ea = pa->adopt(std::move(near), ha, o);
    auto eb = pb->adopt(std::move(far), hb, o);
    if (!ea || !eb) throw std::runtime_error("adopt failed");
    return std::pair{*ea, *eb};
  };
  bed.a = std::move(*a);
  bed.b = std::move(*b);
  return bed;
}

}  // namespace sluice::transport::test
