// Class Segment is the memory that the ranks of one session on one host share: a memfd that one rank creates
// and passes to the others. It has a fixed layout, computed from the number of ranks alone. Addresses and
// sizes are never read from the memory itself, so a damaged peer can spoil results but cannot make this
// process access anything outside the segment.
//
// The memory is allocated when the segment is created, and sealed against a change of its size: otherwise
// another process could shrink it, and the next access would end this process with SIGBUS.
//
// All words hold numbers of pieces. Piece numbers run through the session from 0; piece q uses slot q mod
// slots. A rank arrives at piece q only after it has finished piece q - window, at which all ranks had
// arrived then. So when all have arrived at q, all have finished q - window. And a rank that is about to
// arrive at q knows that all have finished q - 2 window (docs/design/adr/0027).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::local {

inline constexpr uint32_t kMaxRanks = 64;  // of one host in one session
inline constexpr uint32_t kMaxSlots = 512;

// The sizes of a segment, which all ranks of the host compute alike.
struct Geometry {
  uint32_t ranks = 1;   // of the host
  uint32_t window = 0;  // pieces in flight
  uint32_t slots = 0;   // the window; twice the window where other ranks than the maker read contributions
  uint32_t slot_bytes = 0;

  // For a session on one host: smaller pieces cost wake-ups, larger ones cache misses. Eight ranks use 9 MiB.
  [[nodiscard]] static Geometry of_one_host(uint32_t ranks) noexcept {
    return {.ranks = ranks, .window = 8, .slots = 16, .slot_bytes = 64 * kKiB};
  }
  // For one of several hosts: each rail needs some pieces in flight, and fewer, larger ones cost less.
  [[nodiscard]] static Geometry of_several_hosts(uint32_t ranks, uint32_t rails) noexcept {
    const uint32_t window = 4 * std::max(rails, 2U);
    return {.ranks = ranks, .window = window, .slots = window, .slot_bytes = 256 * kKiB};
  }
  // Between the pieces of two ranks: an odd number of cache lines more, so that the same element of all
  // pieces is not in the same set of every cache.
  [[nodiscard]] size_t stride() const noexcept { return slot_bytes + 17 * 64; }
};
inline constexpr size_t kMaxFailureText = 488;

// The piece that a rank has arrived at, and its operation. All ranks must agree on them.
struct Announcement {
  uint64_t count = 0;
  uint32_t op_id = 0;  // number of the operation in the session; wraps
  uint32_t piece_bytes = 0;
  uint32_t owner = 0;
  uint32_t root = 0;
  uint32_t counts_crc = 0;  // engine::Operation
  uint8_t kind = 0;
  uint8_t dtype = 0;
  uint8_t op = 0;
  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// What one rank says of its piece in a slot. Written by that rank before it counts as arrived.
struct alignas(64) Arrival {
  std::atomic<uint64_t> next{0};  // number of the piece + 1; 0: none yet
  Announcement announcement;
};

struct alignas(64) PieceSlot {
  alignas(64) std::atomic<uint64_t> arrivals{
      0};                                       // since the start of the session, over all pieces of the slot
  alignas(64) std::atomic<uint64_t> result{0};  // number + 1 of the last piece whose result is complete
};

// Where a rank sleeps. Before that it says for what, so that nobody wakes it for nothing.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> word{0};              // futex; incremented to wake the rank
  std::atomic<uint64_t> awaited_result{0};    // number + 1 of a piece; 0: none
  std::atomic<uint64_t> awaited_arrivals{0};  // the same: all ranks have arrived at that piece
  std::atomic<uint32_t> watch_word{0};        // futex; incremented to wake the thread that watches the peers
};

// A robust futex (peer_watch.h). `next` is the kernel's list of the process that owns the word.
struct LifeWord {
  uint64_t next = 0;
  std::atomic<uint32_t> word{0};
  uint32_t reserved = 0;
};
static_assert(sizeof(LifeWord) == 16 && std::atomic<uint32_t>::is_always_lock_free);

// The first failure of the session on this host. Only the rank that has changed `state` from kNone writes.
struct alignas(64) FailureRecord {
  enum : uint32_t { kNone, kWriting, kSet };
  std::atomic<uint32_t> state{kNone};
  uint32_t code = 0;
  uint32_t rank = 0;  // of the session, at fault; wire::kNoRank if none is known
  std::array<char, kMaxFailureText> text{};
};

inline constexpr size_t kMaxPoolText = 32 * kKiB;

// The list of reducers that rank 0 has set last, for the ranks of its host. One writer; a reader that meets a
// write gets the list at its next try. Words, so that a torn read is no data race.
struct alignas(64) PoolRecord {
  std::atomic<uint32_t> version{0};  // odd while rank 0 writes
  std::array<std::atomic<uint64_t>, kMaxPoolText / sizeof(uint64_t)> text{};

  void write(const std::string& list) noexcept;  // shorter than kMaxPoolText
  // Returns false if the list is that of `seen`, or incomplete. Else sets both.
  [[nodiscard]] bool read(uint32_t& seen, std::string& list) const;
};

class Segment {
 public:
  // Creates a segment for 1..kMaxRanks ranks, and its descriptor. Errors: kSystem with the size and
  // the cause: no memfd_create, or not enough memory.
  [[nodiscard]] static Result<Segment> create(const Geometry& geometry);
  // Maps the segment behind a descriptor of another process, which becomes the segment's. Errors: kSystem;
  // kBadLength for another size than that of `geometry`; kUnsupported if it lacks a seal.
  [[nodiscard]] static Result<Segment> map(int descriptor, const Geometry& geometry);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  [[nodiscard]] size_t bytes() const noexcept { return layout_.end; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  // The mapping stays, the descriptor is no longer needed once all ranks have one.
  void close_descriptor() noexcept;
  [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] uint32_t ranks() const noexcept { return geometry_.ranks; }

  [[nodiscard]] FailureRecord& failure() const noexcept;
  [[nodiscard]] PoolRecord& pool() const noexcept;
  [[nodiscard]] std::atomic<int32_t>& process(Rank rank) const noexcept;  // id, as its rank sees it
  [[nodiscard]] Doorbell& doorbell(Rank rank) const noexcept;
  [[nodiscard]] PieceSlot& slot(uint32_t slot) const noexcept;
  [[nodiscard]] Arrival& arrival(uint32_t slot, Rank rank) const noexcept;
  // The word by which `watcher` learns of the end of `rank`.
  [[nodiscard]] LifeWord& life(Rank rank, Rank watcher) const noexcept;
  [[nodiscard]] std::byte* contribution(uint32_t slot, Rank rank) const noexcept;
  [[nodiscard]] std::byte* result(uint32_t slot) const noexcept;

 private:
  // Offsets of the parts, in their order in memory. The failure record comes first.
  struct Layout {
    explicit Layout(const Geometry& geometry) noexcept;
    size_t pool, processes, doorbells, slots, arrivals, lives, contributions, results, end;
  };
  Segment(int descriptor, const Geometry& geometry) noexcept
      : geometry_(geometry), layout_(geometry), descriptor_(descriptor) {}
  [[nodiscard]] Result<void> map_memory() noexcept;
  [[nodiscard]] std::string describe_error(int error) const;
  template <typename T>
  [[nodiscard]] T& at(size_t offset) const noexcept {
    return *std::launder(reinterpret_cast<T*>(memory_ + offset));
  }

  Geometry geometry_;
  Layout layout_;
  std::byte* memory_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace sluice::local
