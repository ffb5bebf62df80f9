// What a listener tells a connector through NCCL, which copies these 128 bytes between the hosts: where it
// listens, and the secret that shows a stream to be of whoever was told.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

#include "core/result.h"
#include "nccl_plugin/net/net.h"

namespace sluice::nccl::net {

using Secret = std::array<uint8_t, 16>;

struct Invitation {
  sockaddr_storage address{};  // IPv4 or IPv6, with port
  Secret secret{};
  uint64_t features = 0;  // wire::kStream...; of a listener that knows of none: 0
};

// The connector's part of the handle is zeroed.
void write_invitation(const Invitation& invitation, Handle handle) noexcept;
// kNoCommonVersion, kBadMagic or kBadField with a text for people.
[[nodiscard]] Result<Invitation> read_invitation(Handle handle);

// The number of a connect under way, 0 before its first call. Lives in the connector's copy of the handle.
[[nodiscard]] uint64_t connect_number(Handle handle) noexcept;
void set_connect_number(Handle handle, uint64_t number) noexcept;

// kSystem when the kernel has no random bits to give.
[[nodiscard]] Result<Secret> new_secret();
// In a time that does not depend on where they differ.
[[nodiscard]] bool same_secret(const Secret& a, const Secret& b) noexcept;

}  // namespace sluice::nccl::net
