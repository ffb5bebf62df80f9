// What a lane knows about the chunk in one slot: who has contributed, whether they agree, how far the fold
// is.
//
//   kFree -> kFilling (first contribution) -> kFolding (all are there) -> kFree (result put to every rank)
//
// A view change makes all of them free at once.
//
// Ranks send in order of sequence, so "rank r has contributed sequence s" is a comparison with r's next
// expected sequence; no bitmap.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/status.h"
#include "core/units.h"
#include "wire/extension.h"
#include "wire/frame.h"

namespace sluice::reducer {

enum class ChunkState : uint8_t { kFree, kFilling, kFolding };

struct ChunkSlot {
  ChunkState state = ChunkState::kFree;
  uint32_t arrived = 0;     // contributions complete
  uint32_t first_rank = 0;  // whose header is the reference
  uint32_t last_rank = 0;
  uint32_t groups_folded = 0;  // partial sums complete (sessions of more than one group)
  Nanos first_arrival = 0;
  Nanos last_arrival = 0;
  bool kept = false;                    // a rank has contributed the result itself: nothing is summed
  uint32_t kept_rank = 0;               // the first that has
  uint64_t count = 0;                   // of the whole operation, from OP_INFO; 0 = not told
  wire::FrameHeader reference;          // of the first contribution
  std::vector<uint32_t> group_arrived;  // per group; sized once

  void begin(const wire::FrameHeader& header, uint64_t op_count, uint32_t rank, Nanos now) noexcept;
};

// The frame of a result but for its payload, which stays in the result's slot: kept until the next one of the
// slot, to be sent again.
struct PutResult {
  wire::FrameHeader header;
  std::array<std::byte, wire::kSmallExtensionBytes> extension{};
};

// The first field in which two contributions to one sequence differ, or nullptr. The names are PROTOCOL.md's.
[[nodiscard]] const char* first_difference(const wire::FrameHeader& a, const wire::FrameHeader& b) noexcept;

}  // namespace sluice::reducer
