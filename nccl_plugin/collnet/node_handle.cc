#include "nccl_plugin/collnet/node_handle.h"

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "wire/sha256.h"

namespace sluice::nccl::collnet {
namespace {

// magic u32 | version u16 | port u16 | identity 16 | address, zero-terminated text, 64
constexpr uint32_t kHandleMagic = 0x4E434C53;  // "SLCN"
constexpr uint16_t kHandleVersion = 2;         // of the handle and of the messages between the nodes
constexpr size_t kAddressAt = 24;
constexpr size_t kAddressBytes = 64;

}  // namespace

void encode_node_handle(const NodeHandle& handle, std::span<std::byte, abi::kHandleBytes> out) noexcept {
  std::ranges::fill(out, std::byte{0});
  store_le<uint32_t>(out.data(), kHandleMagic);
  store_le<uint16_t>(out.data() + 4, kHandleVersion);
  store_le<uint16_t>(out.data() + 6, handle.port);
  std::memcpy(out.data() + 8, handle.identity.data(), handle.identity.size());
  std::memcpy(out.data() + kAddressAt, handle.address.data(),
              std::min(handle.address.size(), kAddressBytes - 1));
}

Result<NodeHandle> decode_node_handle(std::span<const std::byte, abi::kHandleBytes> in) {
  if (load_le<uint32_t>(in.data()) != kHandleMagic)
    return fail(Errc::kBadMagic, "handle of a node comes from another plugin; load this plugin on all nodes");
  if (const auto version = load_le<uint16_t>(in.data() + 4); version != kHandleVersion) {
    return fail(Errc::kBadVersion, "handle of a node has version " + std::to_string(version) + ", expected " +
                                       std::to_string(kHandleVersion) +
                                       "; install the same version of the plugin on all nodes");
  }
  NodeHandle handle;
  handle.port = load_le<uint16_t>(in.data() + 6);
  std::memcpy(handle.identity.data(), in.data() + 8, handle.identity.size());
  const auto* text = reinterpret_cast<const char*>(in.data() + kAddressAt);
  handle.address.assign(text, ::strnlen(text, kAddressBytes - 1));
  return handle;
}

Result<void> check_distinct(const std::vector<NodeHandle>& nodes) {
  std::vector<NodeHandle> sorted = nodes;
  std::ranges::sort(sorted, {}, &NodeHandle::identity);
  const auto duplicate = std::ranges::adjacent_find(sorted, {}, &NodeHandle::identity);
  if (duplicate != sorted.end()) return fail(Errc::kInvalidArgument, "two nodes have the same handle");
  return {};
}

SessionId session_id_of(const std::vector<NodeHandle>& nodes) {
  std::vector<NodeHandle> sorted = nodes;
  std::ranges::sort(sorted, {}, &NodeHandle::identity);
  std::vector<std::byte> all;
  for (const NodeHandle& node : sorted) {
    const auto bytes = std::as_bytes(std::span(node.identity));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  const wire::Digest digest = wire::sha256(all);
  SessionId id;
  static_assert(sizeof id.bytes == 16);
  std::memcpy(id.bytes.data(), digest.data(), id.bytes.size());
  return id;
}

}  // namespace sluice::nccl::collnet
