#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

#include "core/result.h"
#include "nccl_plugin/net/net.h"

namespace sluice::nccl::net {

using Secret = std::array<uint8_t, 16>;

// ListenHandle is what a listener passes to a connector in NCCL's handle of 128 bytes: the address, and the
// secret by which the listener recognizes the connector.
struct ListenHandle {
  sockaddr_storage address{};  // IPv4 or IPv6, with port
  Secret secret{};
  uint64_t features = 0;  // wire::kStream... bits; 0 from listeners of earlier versions
};

// Also zeroes the part of the handle that belongs to the connector.
void encode_listen_handle(const ListenHandle& listen_handle, Handle handle) noexcept;
// kNoCommonVersion, kBadMagic or kBadField.
[[nodiscard]] Result<ListenHandle> decode_listen_handle(Handle handle);

// The id of a pending connect, in the connector's copy of the handle; 0 before the first call.
[[nodiscard]] uint64_t connect_id(Handle handle) noexcept;
void set_connect_id(Handle handle, uint64_t id) noexcept;

// kSystem when the kernel provides no random bytes.
[[nodiscard]] Result<Secret> new_secret();
// Compares in constant time.
[[nodiscard]] bool secrets_equal(const Secret& a, const Secret& b) noexcept;

}  // namespace sluice::nccl::net
