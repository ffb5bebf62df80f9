#include "nccl_plugin/net/listen_handle.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "core/bytes.h"
#include "transport/tcp/address.h"

namespace sluice::nccl::net {
namespace {

constexpr uint32_t kMagic = 0x484E4C53;  // "SLNH"
constexpr uint16_t kLayout = 1;

enum Offset : size_t {
  kAtMagic = 0,
  kAtLayout = 4,
  kAtFamily = 6,  // 4 or 6
  kAtPort = 8,
  kAtAddress = 16,  // 4 or 16 bytes in network order, then zeros
  kAtSecret = 32,
  kAtFeatures = 48,
  kAtConnectId = 120,  // written by the connector
};
static_assert(kAtConnectId + sizeof(uint64_t) == abi::kHandleBytes);

// Returns the error for a handle that this plugin did not write. The handles of NCCL's own networks, TCP and
// RDMA, begin with the socket address of the node; NCCL uses them on a node where the plugin is missing or
// offers no network, so the address names the node to correct.
Error foreign_handle_error(Handle handle) {
  sockaddr_storage address{};
  std::memcpy(&address, handle.data(), sizeof(sockaddr_in6));
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  const bool is_v4 = address.ss_family == AF_INET && v4.sin_port != 0;
  const bool is_v6 = address.ss_family == AF_INET6 && v6.sin6_port != 0;
  if (is_v4) ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  if (is_v6) ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  if (!is_v4 && !is_v6)
    return {Errc::kBadMagic, "handle of the peer comes from another plugin; load this plugin on all nodes"};
  return {
      Errc::kBadMagic,
      "node " + std::string(text.data()) +
          " uses NCCL's own network: SLUICE_REDUCERS is not set there, the plugin is not installed, or it "
          "has no usable interface there; set SLUICE_REDUCERS and NCCL_NET_PLUGIN alike on all nodes, "
          "and see that node's line \"offload OFF\""};
}

}  // namespace

void encode_listen_handle(const ListenHandle& listen_handle, Handle handle) noexcept {
  std::ranges::fill(handle, std::byte{0});
  std::byte* p = handle.data();
  store_le(p + kAtMagic, kMagic);
  store_le(p + kAtLayout, kLayout);
  if (listen_handle.address.ss_family == AF_INET6) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(listen_handle.address);
    store_le(p + kAtFamily, uint16_t{6});
    store_le(p + kAtPort, ntohs(a.sin6_port));
    std::memcpy(p + kAtAddress, &a.sin6_addr, sizeof a.sin6_addr);
  } else {
    const auto& a = reinterpret_cast<const sockaddr_in&>(listen_handle.address);
    store_le(p + kAtFamily, uint16_t{4});
    store_le(p + kAtPort, ntohs(a.sin_port));
    std::memcpy(p + kAtAddress, &a.sin_addr, sizeof a.sin_addr);
  }
  std::memcpy(p + kAtSecret, listen_handle.secret.data(), listen_handle.secret.size());
  store_le(p + kAtFeatures, listen_handle.features);
}

Result<ListenHandle> decode_listen_handle(Handle handle) {
  const std::byte* p = handle.data();
  if (load_le<uint32_t>(p + kAtMagic) != kMagic) return tl::unexpected(foreign_handle_error(handle));
  if (const auto layout = load_le<uint16_t>(p + kAtLayout); layout != kLayout) {
    return fail(Errc::kNoCommonVersion, "handle of the peer has layout " + std::to_string(layout) +
                                            ", expected " + std::to_string(kLayout) +
                                            "; install the same version of the plugin on all nodes");
  }
  ListenHandle out;
  const auto port = load_le<uint16_t>(p + kAtPort);
  const auto family = load_le<uint16_t>(p + kAtFamily);
  if (port == 0 || (family != 4 && family != 6))
    return fail(Errc::kBadField, "handle of the peer has no valid address");
  if (family == 6) {
    auto& a = reinterpret_cast<sockaddr_in6&>(out.address);
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    std::memcpy(&a.sin6_addr, p + kAtAddress, sizeof a.sin6_addr);
  } else {
    auto& a = reinterpret_cast<sockaddr_in&>(out.address);
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    std::memcpy(&a.sin_addr, p + kAtAddress, sizeof a.sin_addr);
  }
  std::memcpy(out.secret.data(), p + kAtSecret, out.secret.size());
  out.features = load_le<uint64_t>(p + kAtFeatures);
  return out;
}

uint64_t connect_id(Handle handle) noexcept {
  return load_le<uint64_t>(handle.data() + kAtConnectId);
}

void set_connect_id(Handle handle, uint64_t id) noexcept {
  store_le(handle.data() + kAtConnectId, id);
}

Result<Secret> new_secret() {
  Secret secret{};
  size_t filled = 0;
  while (filled < secret.size()) {
    const ssize_t n = ::getrandom(secret.data() + filled, secret.size() - filled, 0);
    if (n < 0 && errno != EINTR)
      return fail(Errc::kSystem, "cannot read random bytes: " + transport::tcp::error_text(errno));
    if (n > 0) filled += static_cast<size_t>(n);
  }
  return secret;
}

bool secrets_equal(const Secret& a, const Secret& b) noexcept {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace sluice::nccl::net
