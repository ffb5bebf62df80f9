#include "nccl_plugin/collnet/handle.h"

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "wire/sha256.h"

namespace sluice::nccl::collnet {
namespace {

// magic u32 | version u16 | port u16 | identity 16 | address, text, ended by zero, 64
constexpr uint32_t kMagic = 0x4E434C53;  // "SLCN"
constexpr uint16_t kVersion = 2;         // of the handle and of the words between the nodes
constexpr size_t kAddressAt = 24;
constexpr size_t kAddressBytes = 64;

}  // namespace

void write_handle(const Contact& contact, std::span<std::byte, abi::kHandleBytes> out) noexcept {
  std::ranges::fill(out, std::byte{0});
  store_le<uint32_t>(out.data(), kMagic);
  store_le<uint16_t>(out.data() + 4, kVersion);
  store_le<uint16_t>(out.data() + 6, contact.port);
  std::memcpy(out.data() + 8, contact.identity.data(), contact.identity.size());
  std::memcpy(out.data() + kAddressAt, contact.address.data(),
              std::min(contact.address.size(), kAddressBytes - 1));
}

Result<Contact> read_handle(std::span<const std::byte, abi::kHandleBytes> in) {
  if (load_le<uint32_t>(in.data()) != kMagic)
    return fail(Errc::kBadMagic, "a node's handle is not of this plugin");
  if (const auto version = load_le<uint16_t>(in.data() + 4); version != kVersion) {
    return fail(Errc::kBadVersion, "a node's handle has version " + std::to_string(version) +
                                       ", this plugin's is " + std::to_string(kVersion));
  }
  Contact c;
  c.port = load_le<uint16_t>(in.data() + 6);
  std::memcpy(c.identity.data(), in.data() + 8, c.identity.size());
  const auto* text = reinterpret_cast<const char*>(in.data() + kAddressAt);
  c.address.assign(text, ::strnlen(text, kAddressBytes - 1));
  return c;
}

Result<void> check_distinct(const std::vector<Contact>& nodes) {
  std::vector<Contact> sorted = nodes;
  std::ranges::sort(sorted, {}, &Contact::identity);
  const auto twice = std::ranges::adjacent_find(sorted, {}, &Contact::identity);
  if (twice != sorted.end()) return fail(Errc::kInvalidArgument, "two nodes have the same handle");
  return {};
}

SessionId session_of(const std::vector<Contact>& nodes) {
  std::vector<Contact> sorted = nodes;
  std::ranges::sort(sorted, {}, &Contact::identity);
  std::vector<std::byte> all;
  for (const Contact& c : sorted) {
    const auto bytes = std::as_bytes(std::span(c.identity));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  const wire::Digest digest = wire::sha256(all);
  SessionId id;
  static_assert(sizeof id.bytes == 16);
  std::memcpy(id.bytes.data(), digest.data(), id.bytes.size());
  return id;
}

}  // namespace sluice::nccl::collnet
