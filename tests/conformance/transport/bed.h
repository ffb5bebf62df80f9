// Two contexts of one transport and a way to join them: what every conformance test runs on.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/fault/fault_context.h"
#include "transport/transport.h"

namespace sluice::transport::test {

struct Bed {
  std::shared_ptr<void> ground;  // what the contexts stand on
  std::unique_ptr<Context> a;
  std::unique_ptr<Context> b;
  std::function<std::pair<Endpoint*, Endpoint*>(Handler&, Handler&, const EndpointOptions&)> connect;
  // Has devices know these bytes for as long as what it gives lives; may be none.
  std::function<std::shared_ptr<void>(std::span<std::byte>)> know;
  std::string missing;  // why this host has no such transport; empty = it has
};

// "inproc", "tcp", "tcp6", "tls", and "fault(...)" over some of them with empty plans; "rdma" where
// SLUICE_TEST_RDMA says that the machine has a device, which is then no reason to skip.
[[nodiscard]] std::vector<std::string> bed_names();
[[nodiscard]] Bed make_bed(const std::string& name);

// The same with faults in front of both contexts.
[[nodiscard]] Bed put_faults(Bed below, fault::FaultPlan plan_a, fault::FaultPlan plan_b);

// A connected pair of TCP sockets over the address `host`; {-1, -1} when the host lacks it. `from`: that of
// the first.
[[nodiscard]] std::pair<int, int> tcp_pair(const std::string& host, const std::string& from = {});

}  // namespace sluice::transport::test
