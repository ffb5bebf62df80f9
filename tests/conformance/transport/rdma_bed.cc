#include "tests/conformance/transport/rdma_bed.h"

#include <cstdlib>
#include <future>
#include <stdexcept>

#include "core/clock.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {

std::pair<rdma::Connection, rdma::Connection> joined(const std::string& one, const std::string& other) {
  const auto [first, second] = tcp_pair(one, other);
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  auto far = std::async(std::launch::async,
                        [fd = second, deadline] { return rdma::join(tcp::Socket(fd), deadline); });
  auto near = rdma::join(tcp::Socket(first), deadline);
  auto met = far.get();
  if (!near || !met)
    throw std::runtime_error((near ? "" : near.error().text) + " / " + (met ? "" : met.error().text));
  return {std::move(*near), std::move(*met)};
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
  bed.connect = [one = one, other = other, pa = a->get(), pb = b->get()](Handler& ha, Handler& hb,
                                                                         const EndpointOptions& o) {
    auto [near, far] = joined(one, other);
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
