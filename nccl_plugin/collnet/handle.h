// What a node puts into NCCL's 128 bytes for the others: who it is and where the agreement (agreement.h) can
// reach it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "nccl_plugin/abi/types.h"

namespace sluice::nccl::collnet {

struct Contact {
  std::array<uint8_t, 16> identity{};  // random: names the node of this communicator's head
  std::string address;                 // numeric
  uint16_t port = 0;                   // 0: it could not listen
  friend bool operator==(const Contact&, const Contact&) = default;
};

void write_handle(const Contact& contact, std::span<std::byte, abi::kHandleBytes> out) noexcept;
// kBadMagic, kBadVersion, kBadField: another plugin's handle, or another version's.
[[nodiscard]] Result<Contact> read_handle(std::span<const std::byte, abi::kHandleBytes> in);

// kInvalidArgument when two are of the same name.
[[nodiscard]] Result<void> check_distinct(const std::vector<Contact>& nodes);

// The first 16 bytes of SHA-256 over the sorted identities. Never the communicator's id: its heads share
// that.
[[nodiscard]] SessionId session_of(const std::vector<Contact>& nodes);

}  // namespace sluice::nccl::collnet
