// Struct ChunkSlot is a lane's state of the chunk in one slot: its contributions, their agreement, its fold.
//
//   kFree -> kFilling (first contribution) -> kFolding (all contributions) -> kFree (result put to all ranks)
//
// A view change frees all slots at once. No bitmap of ranks is needed: ranks send in order of sequence, so
// rank r has contributed sequence s if its next expected sequence is larger.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/status.h"
#include "core/units.h"
#include "wire/extension.h"
#include "wire/frame.h"
#include "wire/message_limits.h"

namespace sluice::reducer {

enum class ChunkState : uint8_t { kFree, kFilling, kFolding };

struct ChunkSlot {
  ChunkState state = ChunkState::kFree;
  uint32_t arrived = 0;     // complete contributions
  uint32_t first_rank = 0;  // sender of `reference`
  uint32_t last_rank = 0;
  uint32_t groups_folded = 0;  // complete partial sums, in sessions of more than one group
  Nanos first_arrival = 0;
  Nanos last_arrival = 0;
  bool accepts_sparse = false;  // all ranks that have contributed accept a sparse result
  bool kept = false;  // a rank contributed the result itself, or the owner what is copied: nothing is summed
  uint32_t kept_rank = 0;               // the first such rank
  uint64_t count = 0;                   // elements of the whole operation, from OP_INFO; 0: unknown
  std::optional<wire::Caller> caller;   // of the first contribution
  wire::FrameHeader reference;          // header of the first contribution; length is the chunk's
  uint32_t owner = wire::kNoRank;       // of kinds whose chunks have one
  std::vector<uint32_t> group_arrived;  // by group; allocated once

  // `header` has the chunk's length, even if the contribution was empty.
  void begin(const wire::FrameHeader& header, uint32_t chunk_owner, uint64_t op_count,
             const std::optional<wire::Caller>& op_caller, uint32_t rank, Nanos now) noexcept;
};

// The frame of the latest result of a slot, for resending. The payload stays in the result slot.
struct SentResult {
  wire::FrameHeader header;  // as ranks get it that receive the payload
  uint32_t owner = wire::kNoRank;
  // RESULT; FINDING if there is one; EXPANDED if the payload is sparse. The first two go to every rank.
  std::array<std::byte, 3 * wire::kSmallExtensionBytes> extensions{};
  uint8_t small_extensions = 1;  // without EXPANDED
};

// The first field in which a contribution to the chunk's sequence differs, named as in protocol.md, or
// nullptr. `header` has the chunk's length; `op_count` is OP_INFO's.
[[nodiscard]] const char* first_difference(const ChunkSlot& chunk, const wire::FrameHeader& header,
                                           uint32_t owner, uint64_t op_count) noexcept;

// The same for what the callers of both call, if they differ there.
[[nodiscard]] const char* first_difference(const wire::Caller& a, const wire::Caller& b) noexcept;

}  // namespace sluice::reducer
