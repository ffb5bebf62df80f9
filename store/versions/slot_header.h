// The header of a slot: the file of one version of a shard (version_files.h). Little-endian:
//
//   offset  size  field
//        0     8  magic "SLUICEV1"
//        8     8  state (SlotState)
//       16     4  format, 1
//       20     4  shard
//       24     8  elements of an array
//       32     4  arrays
//       36     4  most pushes that fit
//       40    32  fingerprint of the model
//       72     8  version
//       80     8  generation of the shard's owner that wrote the version
//       88     8  steps that made it, for the rule
//       96     4  pushes that it contains
//      100    12  CRC-32C of each array
//      112     4  CRC-32C of offsets 16 to 112 and of the pushes
//      128    16  for each push: worker, number
//
// The arrays follow at the next multiple of 4096. The state is outside of the checksum, because it changes
// alone and by one store; its values differ in most bits, so damage does not turn one into another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/result.h"
#include "store/update/update_rule.h"
#include "wire/sha256.h"

namespace sluice::store {

// (worker, number) identifies a push, so that no push counts twice.
struct PushIdentity {
  uint64_t worker = 0;
  uint64_t number = 0;
  friend bool operator==(PushIdentity, PushIdentity) = default;
};

enum class SlotState : uint64_t {
  kFree = 0x5a1f0c63d2984be7,
  kWriting = 0x21e8b7949c4d7a52,   // torn if the process ends now
  kPrepared = 0xc64d319e07b2f58d,  // complete, may be committed or discarded
  kCommitted = 0x8b92ee3574016d18,
};

// What all slots of a shard have in common.
struct ShardShape {
  wire::Digest fingerprint{};
  uint32_t shard = 0;
  uint32_t arrays = 1;      // 1 to kMaxArrays
  uint64_t elements = 0;    // of each array; a multiple of kShardMultiple
  uint32_t max_pushes = 0;  // that a version can contain
  uint32_t kept = 1;        // committed versions that are kept
  [[nodiscard]] size_t content_at() const noexcept;
  [[nodiscard]] size_t array_bytes() const noexcept { return elements * sizeof(float); }
  [[nodiscard]] size_t file_bytes() const noexcept { return content_at() + arrays * array_bytes(); }
};

using Checksums = std::array<uint32_t, kMaxArrays>;  // CRC-32C of each array

// What a version adds.
struct VersionFacts {
  uint64_t version = 0;
  uint64_t generation = 0;
  uint64_t steps = 0;
  Checksums checksums{};
};

// The state is read and written apart from the rest, as one aligned store that no other store passes.
[[nodiscard]] SlotState load_state(const std::byte* slot) noexcept;
void store_state(std::byte* slot, SlotState state) noexcept;

// Writes all but the state. `slot` has content_at() bytes, `pushes` at most max_pushes.
void write_header(std::byte* slot, const ShardShape& shape, const VersionFacts& facts,
                  std::span<const PushIdentity> pushes) noexcept;

// Checks the magic and the format, which every state has. kMismatch.
[[nodiscard]] Result<void> check_format(const std::byte* slot);
// Reads the header of a prepared or committed version, and checks its checksum and shape. The error says what
// disagrees and both values. kMismatch: the file is another shard's; kInvalidArgument: it is damaged.
[[nodiscard]] Result<VersionFacts> read_header(const std::byte* slot, const ShardShape& shape);

// Of a header that read_header() has accepted.
[[nodiscard]] uint32_t push_count(const std::byte* slot) noexcept;
[[nodiscard]] PushIdentity push_at(const std::byte* slot, size_t index) noexcept;

}  // namespace sluice::store
