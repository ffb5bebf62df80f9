#include "tests/conformance/transport/bed.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <stdexcept>

#include "core/clock.h"
#include "tests/conformance/transport/tls_pair.h"
#include "transport/inproc/inproc_network.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

#ifdef SLUICE_HAVE_RDMA
#include "tests/conformance/transport/rdma_bed.h"
#endif

namespace sluice::transport::test {
namespace {

Bed inproc_bed() {
  std::shared_ptr<inproc::Network> network = inproc::make_network();
  Bed bed{.ground = network,
          .a = network->make_context(),
          .b = network->make_context(),
          .connect = {},
          .know = {},
          .missing = {}};
  bed.connect = [n = network.get(), a = bed.a.get(), b = bed.b.get()](Handler& ha, Handler& hb,
                                                                      const EndpointOptions& o) {
    return n->connect(*a, ha, *b, hb, o);
  };
  return bed;
}

Bed tcp_bed(const std::string& host) {
  auto a = tcp::make_context();
  auto b = tcp::make_context();
  if (!a || !b) throw std::runtime_error("no epoll");
  Bed bed;
  const auto probe = tcp_pair(host);
  if (probe.first < 0) bed.missing = "needs ipv6: this host has no address " + host;
  const tcp::Socket first(probe.first), second(probe.second);
  bed.connect = [host, pa = a->get(), pb = b->get()](Handler& ha, Handler& hb, const EndpointOptions& o) {
    const auto [fa, fb] = tcp_pair(host);
    auto ea = pa->adopt(fa, ha, o);
    auto eb = pb->adopt(fb, hb, o);
    if (!ea || !eb) throw std::runtime_error("adopt failed");
    return std::pair{*ea, *eb};
  };
  bed.a = std::move(*a);
  bed.b = std::move(*b);
  return bed;
}

Bed tls_bed() {
  Bed bed;
  if (!find_tls_library()) {
    bed.missing = "needs tls-library: libsluice_tls.so was not built";
    return bed;
  }
  auto a = tcp::make_context();
  auto b = tcp::make_context();
  if (!a || !b) throw std::runtime_error("no epoll");
  // Few records with one key: what happens once in 100 GB happens in every test.
  bed.connect = [terms = same_key(5), pa = a->get(), pb = b->get()](Handler& ha, Handler& hb,
                                                                    const EndpointOptions& o) {
    TlsPair pair = tls_pair("127.0.0.1", terms);
    if (!pair.client.valid()) throw std::runtime_error(pair.client_why + " / " + pair.server_why);
    auto ea = pa->adopt(std::move(pair.client), ha, o);
    auto eb = pb->adopt(std::move(pair.server), hb, o);
    if (!ea || !eb) throw std::runtime_error("adopt failed");
    return std::pair{*ea, *eb};
  };
  bed.a = std::move(*a);
  bed.b = std::move(*b);
  return bed;
}

}  // namespace

std::vector<std::string> bed_names() {
  std::vector<std::string> names{"inproc", "tcp", "tcp6", "tls", "fault(inproc)", "fault(tcp)", "fault(tls)"};
  if (std::getenv("SLUICE_TEST_RDMA") != nullptr) names.insert(names.end(), {"rdma", "fault(rdma)"});
  return names;
}

Bed make_bed(const std::string& name) {
  if (name == "inproc") return inproc_bed();
  if (name == "tcp") return tcp_bed("127.0.0.1");
  if (name == "tcp6") return tcp_bed("::1");
  if (name == "tls") return tls_bed();
  if (name == "fault(tls)") {
    Bed bed = tls_bed();
    return bed.missing.empty() ? put_faults(std::move(bed), {}, {}) : std::move(bed);
  }
#ifdef SLUICE_HAVE_RDMA
  if (name == "rdma") return rdma_bed();
  if (name == "fault(rdma)") return put_faults(rdma_bed(), {}, {});
#endif
  if (name == "fault(inproc)") return put_faults(inproc_bed(), {}, {});
  if (name == "fault(tcp)") return put_faults(tcp_bed("127.0.0.1"), {}, {});
  throw std::runtime_error("no bed " + name);
}

Bed put_faults(Bed below, fault::FaultPlan plan_a, fault::FaultPlan plan_b) {
  auto a = fault::make_context(std::move(below.a), std::move(plan_a));
  auto b = fault::make_context(std::move(below.b), std::move(plan_b));
  Bed bed;
  bed.ground = std::move(below.ground);
  bed.know = std::move(below.know);
  bed.missing = std::move(below.missing);
  bed.connect = [join = std::move(below.connect), pa = a.get(), pb = b.get()](Handler& ha, Handler& hb,
                                                                              const EndpointOptions& o) {
    Handler& wa = pa->wrap(ha);
    Handler& wb = pb->wrap(hb);
    const auto [ea, eb] = join(wa, wb, o);
    return std::pair{pa->bind(wa, ea, o), pb->bind(wb, eb, o)};
  };
  bed.a = std::move(a);
  bed.b = std::move(b);
  return bed;
}

std::pair<int, int> tcp_pair(const std::string& host, const std::string& from) {
  auto listener = tcp::listen_on(host, 0, {});
  if (!listener) return {-1, -1};
  const Nanos deadline = monotonic_now() + 10 * kSecond;
  tcp::SocketOptions options;
  options.local_address = from;
  auto client = tcp::connect_to(host, tcp::bound_port(listener->fd()).value(), options, deadline);
  if (!client) return {-1, -1};
  pollfd p{.fd = listener->fd(), .events = POLLIN, .revents = 0};
  ::poll(&p, 1, 10'000);
  const int accepted = ::accept4(listener->fd(), nullptr, nullptr, SOCK_CLOEXEC);
  if (accepted < 0) return {-1, -1};
  return {client->release(), accepted};
}

}  // namespace sluice::transport::test
