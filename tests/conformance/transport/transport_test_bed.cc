#include "tests/conformance/transport/transport_test_bed.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <stdexcept>

#include "core/clock.h"
#include "tests/conformance/transport/tls_pair.h"
#include "transport/inproc/inproc_network.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

#ifdef SLUICE_HAVE_RDMA
#include "tests/conformance/transport/rdma_test_bed.h"
#endif

namespace sluice::transport::test {
namespace {

TransportTestBed make_inproc_test_bed() {
  std::shared_ptr<inproc::Network> network = inproc::make_network();
  TransportTestBed test_bed{.network = network,
                            .a = network->make_context(),
                            .b = network->make_context(),
                            .connect = {},
                            .register_memory = {},
                            .skip_reason = {}};
  test_bed.connect = [n = network.get(), a = test_bed.a.get(), b = test_bed.b.get()](
                         Handler& ha, Handler& hb, const EndpointOptions& o) {
    return n->connect(*a, ha, *b, hb, o);
  };
  return test_bed;
}

TransportTestBed make_tcp_test_bed(const std::string& host) {
  auto a = tcp::make_context();
  auto b = tcp::make_context();
  if (!a || !b) throw std::runtime_error("cannot create a TCP context");
  TransportTestBed test_bed;
  const auto probe = tcp_pair(host);
  if (probe.first < 0) test_bed.skip_reason = "needs ipv6: this host has no address " + host;
  const tcp::Socket first(probe.first), second(probe.second);
  test_bed.connect = [host, pa = a->get(), pb = b->get()](Handler& ha, Handler& hb,
                                                          const EndpointOptions& o) {
    const auto [fa, fb] = tcp_pair(host);
    auto ea = pa->adopt(fa, ha, o);
    auto eb = pb->adopt(fb, hb, o);
    if (!ea || !eb) throw std::runtime_error("cannot adopt a socket");
    return std::pair{*ea, *eb};
  };
  test_bed.a = std::move(*a);
  test_bed.b = std::move(*b);
  return test_bed;
}

TransportTestBed make_tls_test_bed() {
  TransportTestBed test_bed;
  if (!use_built_tls_library()) {
    test_bed.skip_reason = "needs tls-library: libsluice_tls.so was not built";
    return test_bed;
  }
  auto a = tcp::make_context();
  auto b = tcp::make_context();
  if (!a || !b) throw std::runtime_error("cannot create a TCP context");
  // Rekeys every 5 records, so that each test covers a key update.
  test_bed.connect = [config = shared_key_config(5), pa = a->get(), pb = b->get()](Handler& ha, Handler& hb,
                                                                                   const EndpointOptions& o) {
    TlsPair pair = tls_pair("127.0.0.1", config);
    if (!pair.client.valid()) throw std::runtime_error(pair.client_error + " / " + pair.server_error);
    auto ea = pa->adopt(std::move(pair.client), ha, o);
    auto eb = pb->adopt(std::move(pair.server), hb, o);
    if (!ea || !eb) throw std::runtime_error("cannot adopt a socket");
    return std::pair{*ea, *eb};
  };
  test_bed.a = std::move(*a);
  test_bed.b = std::move(*b);
  return test_bed;
}

}  // namespace

std::vector<std::string> test_bed_names() {
  std::vector<std::string> names{"inproc", "tcp", "tcp6", "tls", "fault(inproc)", "fault(tcp)", "fault(tls)"};
  if (std::getenv("SLUICE_TEST_RDMA") != nullptr) names.insert(names.end(), {"rdma", "fault(rdma)"});
  return names;
}

TransportTestBed make_test_bed(const std::string& name) {
  if (name == "inproc") return make_inproc_test_bed();
  if (name == "tcp") return make_tcp_test_bed("127.0.0.1");
  if (name == "tcp6") return make_tcp_test_bed("::1");
  if (name == "tls") return make_tls_test_bed();
  if (name == "fault(tls)") {
    TransportTestBed test_bed = make_tls_test_bed();
    return test_bed.skip_reason.empty() ? wrap_with_faults(std::move(test_bed), {}, {}) : std::move(test_bed);
  }
#ifdef SLUICE_HAVE_RDMA
  if (name == "rdma") return make_rdma_test_bed();
  if (name == "fault(rdma)") return wrap_with_faults(make_rdma_test_bed(), {}, {});
#endif
  if (name == "fault(inproc)") return wrap_with_faults(make_inproc_test_bed(), {}, {});
  if (name == "fault(tcp)") return wrap_with_faults(make_tcp_test_bed("127.0.0.1"), {}, {});
  throw std::runtime_error("unknown transport \"" + name + "\"");
}

TransportTestBed wrap_with_faults(TransportTestBed below, fault::FaultPlan plan_a, fault::FaultPlan plan_b) {
  auto a = fault::make_context(std::move(below.a), std::move(plan_a));
  auto b = fault::make_context(std::move(below.b), std::move(plan_b));
  TransportTestBed test_bed;
  test_bed.network = std::move(below.network);
  test_bed.register_memory = std::move(below.register_memory);
  test_bed.skip_reason = std::move(below.skip_reason);
  test_bed.connect = [connect = std::move(below.connect), pa = a.get(), pb = b.get()](
                         Handler& ha, Handler& hb, const EndpointOptions& o) {
    Handler& wa = pa->wrap(ha);
    Handler& wb = pb->wrap(hb);
    const auto [ea, eb] = connect(wa, wb, o);
    return std::pair{pa->bind(wa, ea, o), pb->bind(wb, eb, o)};
  };
  test_bed.a = std::move(a);
  test_bed.b = std::move(b);
  return test_bed;
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
