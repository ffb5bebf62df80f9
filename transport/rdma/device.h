// Which device a connection leaves by, and that device opened.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "transport/rdma/verbs.h"

namespace sluice::transport::rdma {

// One way out of this machine: an entry of the address table of a port that is up.
struct Path {
  std::string device;  // "mlx5_0"
  uint8_t port = 1;
  uint8_t gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  ibv_gid gid{};
  std::string address;  // the gid as an IP address, "10.0.0.1", where it is one
};

// All of RoCE v2; empty where the machine has no device, or none with a port that is up.
// kUnsupported where there is no libibverbs.
[[nodiscard]] Result<std::vector<Path>> paths();

// The one with the address that a TCP connection has at our end: rails are told apart as the routes of TCP
// are. kUnsupported: no device has that address, or the machine has none.
[[nodiscard]] Result<Path> path_of(int tcp_socket);

// The address that a TCP connection has at its other end, as a gid has it.
[[nodiscard]] Result<ibv_gid> gid_of_peer(int tcp_socket);

// Opened once for all who hold it. Any thread.
class Device {
 public:
  [[nodiscard]] static Result<std::shared_ptr<const Device>> open(const Path& path);
  Device(const Verbs& calls, ibv_context* context, ibv_pd* domain) noexcept
      : calls_(calls), context_(context), domain_(domain) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  [[nodiscard]] const Verbs& calls() const noexcept { return calls_; }
  [[nodiscard]] ibv_context* context() const noexcept { return context_; }
  [[nodiscard]] ibv_pd* domain() const noexcept { return domain_; }

 private:
  const Verbs& calls_;
  ibv_context* const context_;
  ibv_pd* const domain_;
};

}  // namespace sluice::transport::rdma
