#include "tests/conformance/transport/transport_test_bed.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "core/clock.h"
#include "tests/conformance/transport/tls_pair.h"
#include "tests/support/transport/inproc_network.h"
#include "transport/memory/memory_context.h"
#include "transport/memory/pipe.h"
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
  std::shared_ptr<inproc::Network> network = std::make_shared<inproc::Network>();
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

// A test bed on TCP contexts; `make_pair` connects their sockets.
TransportTestBed make_socket_test_bed(std::function<SocketPair()> make_pair) {
  auto a = tcp::make_context();
  auto b = tcp::make_context();
  if (!a || !b) throw std::runtime_error("cannot create a TCP context");
  TransportTestBed test_bed;
  test_bed.connect = [make_pair = std::move(make_pair), pa = a->get(), pb = b->get()](
                         Handler& ha, Handler& hb, const EndpointOptions& o) {
    return adopt_pair(make_pair(), *pa, ha, *pb, hb, o);
  };
  test_bed.a = std::move(*a);
  test_bed.b = std::move(*b);
  return test_bed;
}

TransportTestBed make_tcp_test_bed(const std::string& host) {
  TransportTestBed test_bed = make_socket_test_bed([host] { return tcp_pair(host); });
  if (!tcp_pair(host).first.valid()) test_bed.skip_reason = "needs ipv6: this host has no address " + host;
  return test_bed;
}

TransportTestBed make_tls_test_bed() {
  if (!use_built_tls_library()) {
    TransportTestBed test_bed;
    test_bed.skip_reason = "needs tls-library: libsluice_tls.so was not built";
    return test_bed;
  }
  // Rekeys every 5 records, so that each test covers a key update.
  return make_socket_test_bed([config = shared_key_config(5)] {
    TlsPair pair = tls_pair("127.0.0.1", config);
    if (!pair.client.valid()) throw std::runtime_error(pair.client_error + " / " + pair.server_error);
    return SocketPair(std::move(pair.client), std::move(pair.server));
  });
}

TransportTestBed make_memory_test_bed() {
  auto a = memory::make_context();
  auto b = memory::make_context();
  if (!a || !b) throw std::runtime_error("cannot create a context for pipes");
  TransportTestBed test_bed;
  test_bed.connect = [pa = a->get(), pb = b->get()](Handler& ha, Handler& hb, const EndpointOptions& o) {
    return adopt_pair(memory_pair(), *pa, ha, *pb, hb, o);
  };
  test_bed.a = std::move(*a);
  test_bed.b = std::move(*b);
  return test_bed;
}

}  // namespace

SocketPair memory_pair() {
  SocketPair sockets = tcp_pair("127.0.0.1");
  auto ends = memory::make_pipe_ends();
  sockets.first.attach_channel(std::move(ends.first));
  sockets.second.attach_channel(std::move(ends.second));
  return sockets;
}

std::vector<std::string> test_bed_names() {
  std::vector<std::string> names{"inproc",     "memory",        "tcp",           "tcp6",      "tls",
                                 "fault(tcp)", "fault(inproc)", "fault(memory)", "fault(tls)"};
  if (std::getenv("SLUICE_TEST_RDMA") != nullptr) names.insert(names.end(), {"rdma", "fault(rdma)"});
  return names;
}

TransportTestBed make_test_bed(const std::string& name) {
  if (name == "inproc") return make_inproc_test_bed();
  if (name == "memory") return make_memory_test_bed();
  if (name == "tcp") return make_tcp_test_bed("127.0.0.1");
  if (name == "tcp6") return make_tcp_test_bed("::1");
  if (name == "tls") return make_tls_test_bed();
#ifdef SLUICE_HAVE_RDMA
  if (name == "rdma") return make_rdma_test_bed();
#endif
  if (constexpr std::string_view kFault = "fault("; name.starts_with(kFault)) {
    TransportTestBed test_bed = make_test_bed(name.substr(kFault.size(), name.size() - kFault.size() - 1));
    return test_bed.skip_reason.empty() ? wrap_with_faults(std::move(test_bed), {}, {}) : std::move(test_bed);
  }
  throw std::runtime_error("unknown transport \"" + name + "\"");
}

TransportTestBed wrap_with_faults(TransportTestBed below, fault::FaultPlan plan_a, fault::FaultPlan plan_b) {
  auto a = std::make_unique<fault::FaultContext>(std::move(below.a), std::move(plan_a));
  auto b = std::make_unique<fault::FaultContext>(std::move(below.b), std::move(plan_b));
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

SocketPair tcp_pair(const std::string& host, const std::string& from) {
  auto listener = tcp::listen_on(host, 0, {});
  if (!listener) return {};
  const Nanos deadline = monotonic_now() + 10 * kSecond;
  tcp::SocketOptions options;
  options.local_address = from;
  auto client = tcp::connect_to(host, tcp::bound_port(listener->fd()).value(), options, deadline);
  if (!client) return {};
  pollfd p{.fd = listener->fd(), .events = POLLIN, .revents = 0};
  ::poll(&p, 1, 10'000);
  tcp::Socket accepted(::accept4(listener->fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted.valid()) return {};
  return {std::move(*client), std::move(accepted)};
}

std::pair<Endpoint*, Endpoint*> adopt_pair(SocketPair sockets, Context& a, Handler& handler_a, Context& b,
                                           Handler& handler_b, const EndpointOptions& options) {
  const auto at_a = static_cast<tcp::TcpContext&>(a).adopt(std::move(sockets.first), handler_a, options);
  const auto at_b = static_cast<tcp::TcpContext&>(b).adopt(std::move(sockets.second), handler_b, options);
  if (!at_a || !at_b) throw std::runtime_error("cannot adopt a socket");
  return {*at_a, *at_b};
}

}  // namespace sluice::transport::test
