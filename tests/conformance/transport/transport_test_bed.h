#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/transport/fault_context.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::transport::test {

// TransportTestBed is two contexts of one transport and a function that connects them.
struct TransportTestBed {
  std::shared_ptr<void> network;  // outlives the contexts; may be null
  std::unique_ptr<Context> a;
  std::unique_ptr<Context> b;
  std::function<std::pair<Endpoint*, Endpoint*>(Handler&, Handler&, const EndpointOptions&)> connect;
  // Registers memory with RDMA devices for the lifetime of the result; may be empty.
  std::function<std::shared_ptr<void>(std::span<std::byte>)> register_memory;
  std::string skip_reason;  // why this host lacks the transport; empty if it has it
};

// "inproc", "memory", "tcp", "tcp6", "tls", and "fault(...)" around some of them with empty plans. With
// SLUICE_TEST_RDMA also "rdma"; a missing RDMA device is then an error, not a reason to skip.
[[nodiscard]] std::vector<std::string> test_bed_names();
[[nodiscard]] TransportTestBed make_test_bed(const std::string& name);

// Wraps both contexts with faults.
[[nodiscard]] TransportTestBed wrap_with_faults(TransportTestBed below, fault::FaultPlan plan_a,
                                                fault::FaultPlan plan_b);

// A connected pair of TCP sockets on the address `host`, the first with source address `from`. Invalid when
// the host lacks the address.
using SocketPair = std::pair<tcp::Socket, tcp::Socket>;
[[nodiscard]] SocketPair tcp_pair(const std::string& host, const std::string& from = {});
// The same on 127.0.0.1, with the two ends of a pipe attached.
[[nodiscard]] SocketPair memory_pair();

// Makes endpoints of a connected pair in the contexts `a` and `b`.
[[nodiscard]] std::pair<Endpoint*, Endpoint*> adopt_pair(SocketPair sockets, Context& a, Handler& handler_a,
                                                         Context& b, Handler& handler_b,
                                                         const EndpointOptions& options);

}  // namespace sluice::transport::test
