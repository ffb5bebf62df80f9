// Fuzzes the ranks of up to three hosts in one thread: Stage objects that share segments, and rails that the
// script moves. The script decides who submits and who makes progress when.
//
// * However the ranks take turns, all operations end, with the results of a fold over all ranks.
// * If a rank, or all ranks of a host, call another operation, all ranks learn it, and none gets its result.
// * If the script damages the shared memory, as a rank may do that has gone wrong, no access is out of
// bounds.
#include <array>
#include <cstdlib>
#include <optional>

#include "gpu_client/local/stage.h"
#include "reducer/kernels/fold.h"
#include "tests/fuzz/local_rails.h"

namespace sluice::fuzz {
namespace {

using wire::DType;
using wire::Kind;

constexpr uint32_t kSlotBytes = 4096;
constexpr uint32_t kMostOperations = 6;
constexpr uint32_t kMostElements = 9000;
constexpr uint32_t kSteps = 200'000;  // more than any script needs

void require(bool holds) {
  if (!holds) std::abort();
}

// 0, 1 and 2 in each type. The sum of nine is exact in all but e5m2, which has 8, 10, 12...
std::byte* write(DType t, uint32_t value, std::byte* at) {
  static constexpr std::array<std::array<uint64_t, 3>, wire::kPlainDTypeCount> kBits = {{
      {0, 1, 2},
      {0, 1, 2},
      {0, 1, 2},
      {0, 1, 2},
      {0, 1, 2},
      {0, 1, 2},
      {0, 0x3c00, 0x4000},
      {0, 0x3f800000, 0x40000000},
      {0, 0x3ff0000000000000, 0x4000000000000000},
      {0, 0x3f80, 0x4000},
      {0, 0x38, 0x40},
      {0, 0x3c, 0x40},
  }};
  std::memcpy(at, &kBits[static_cast<size_t>(t)][value % 3], wire::size_of(t));  // little-endian
  return at + wire::size_of(t);
}

struct Call {
  Kind kind = Kind::kAllreduce;
  DType dtype = DType::kF32;
  wire::Op op = wire::Op::kSum;
  Rank root = 0;
  std::vector<size_t> counts;  // of the parts; a single one without parts

  [[nodiscard]] size_t count() const {
    size_t sum = 0;
    for (const size_t c : counts) sum += c;
    return sum;
  }
  friend bool operator==(const Call&, const Call&) = default;
};

Call take_call(Input& in, uint32_t ranks) {
  Call c;
  c.kind = std::array{Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter, Kind::kAllGather,
                      Kind::kBroadcast}[in.below(5)];
  c.dtype = static_cast<DType>(in.below(wire::kPlainDTypeCount));
  if (c.dtype == DType::kF8e5m2) c.dtype = DType::kF8e4m3;
  c.op = std::array{wire::Op::kSum, wire::Op::kMax, wire::Op::kAvg}[in.below(3)];
  // The quotient is rounded, but for these.
  if (c.op == wire::Op::kAvg && c.dtype != DType::kF32 && c.dtype != DType::kI32) c.op = wire::Op::kSum;
  if (wire::copies(c.kind)) c.op = wire::Op::kSum;
  if (c.kind == Kind::kReduce || c.kind == Kind::kBroadcast) c.root = in.below(ranks);
  if (!wire::has_parts(c.kind)) {
    c.counts = {1 + in.below(kMostElements)};
  } else if (in.below(2) == 0) {
    const size_t count = 1 + in.below(kMostElements / ranks);
    c.counts.assign(ranks, count % 4 == 3 ? 1 + count % 61 : count);  // often so few that a piece has all
  } else {
    for (Rank rank = 0; rank < ranks; ++rank) c.counts.push_back(in.below(kMostElements / ranks));
    c.counts[in.below(ranks)] += 1;
  }
  return c;
}

// A call that differs in one thing, or not at all.
Call take_similar(Input& in, Call c, uint32_t ranks) {
  const Call any = take_call(in, ranks);
  const bool same_shape = any.counts.size() == c.counts.size();
  switch (in.below(5)) {
    case 0:
      if (!wire::copies(c.kind)) c.op = c.op == wire::Op::kMax ? wire::Op::kSum : wire::Op::kMax;
      break;
    case 1: c.dtype = c.dtype == DType::kF16 ? DType::kF32 : DType::kF16; break;
    case 2:
      if (c.kind == Kind::kReduce || c.kind == Kind::kBroadcast) c.root = (c.root + 1) % ranks;
      break;
    case 3: std::rotate(c.counts.begin(), c.counts.begin() + 1, c.counts.end()); break;
    default:
      c.kind = any.kind, c.root = any.root;
      if (same_shape) break;
      const size_t count = c.count();
      c.counts.assign(any.counts.size(), 0);
      c.counts[any.counts.size() > 1 ? in.below(ranks) : 0] = count;
  }
  if (c.dtype == DType::kF16 && c.op == wire::Op::kAvg) c.op = wire::Op::kSum;
  if (wire::copies(c.kind)) c.op = wire::Op::kSum;
  return c;
}

uint32_t value_of(Rank rank, size_t i, size_t call) {
  return static_cast<uint32_t>((i * 7 + i / 64 + rank * 5 + call) % 3);
}

// The elements [first, first + count) of a rank's contribution.
Bytes contribution(const Call& c, size_t number, Rank rank, size_t first, size_t count) {
  Bytes out(count * wire::size_of(c.dtype));
  std::byte* at = out.data();
  for (size_t i = 0; i < count; ++i) at = write(c.dtype, value_of(rank, first + i, number), at);
  return out;
}

// What one rank does with one call.
struct Submitted {
  Call call;
  uint32_t index = 0;  // in the rank's table
  uint64_t handle = 0;
  Bytes send, recv;  // `send` is empty if the call is in place
  size_t first = 0;  // element of the rank's part
  std::optional<Status> ended;
};

struct Member {
  Member(const local::Segment& segment, const local::Topology& topology, Rank rank, LocalRails& hub)
      : table(1, local::piece_sizes(segment.geometry(), topology.hosts()), topology.ranks(),
              local::strips(topology)) {
    const uint32_t host = topology.host_of[rank];
    if (topology.hosts() > 1) rails.resize(topology.rails);
    for (uint32_t rail = 0; rail < rails.size(); ++rail) {
      if (topology.server_of(rail, host) == topology.local_of[rank]) rails[rail] = hub.member(rail, host);
    }
    stage.emplace(segment, table, topology, rails, rank);
  }
  engine::OpTable table;
  local::Rails rails;
  std::optional<local::Stage> stage;
  std::deque<Submitted> calls;
};

class World {
 public:
  explicit World(std::vector<uint32_t> hosts)
      : topology_(std::move(hosts)), rails_(topology_.rails, topology_.hosts()) {
    for (uint32_t host = 0; host < topology_.hosts(); ++host) {
      const local::Geometry geometry{
          .ranks = topology_.local_ranks(host), .window = 2, .slots = 4, .slot_bytes = kSlotBytes};
      auto segment = local::Segment::create(geometry);
      require(segment.has_value());
      segments_.push_back(std::make_unique<local::Segment>(std::move(*segment)));
    }
    for (Rank rank = 0; rank < topology_.ranks(); ++rank) {
      members_.push_back(
          std::make_unique<Member>(*segments_[topology_.host_of[rank]], topology_, rank, rails_));
    }
  }

  void run(Input in) {
    std::vector<Call> calls(1 + in.below(kMostOperations));
    for (Call& c : calls) c = take_call(in, topology_.ranks());
    const auto mode = in.below(4);  // 0, 1: all is well
    // A rank, or all of its host, calls another operation than the others.
    const size_t wrong_call = in.below(static_cast<uint32_t>(calls.size()));
    const Rank wrong_rank = in.below(topology_.ranks());
    const bool is_whole_host = in.below(2) == 0;
    const Call other = mode == 2 ? take_similar(in, calls[wrong_call], topology_.ranks()) : calls[wrong_call];
    const bool differs = other != calls[wrong_call] && (!is_whole_host || topology_.hosts() > 1);
    const auto call_of = [&](Rank rank, size_t number) -> const Call& {
      const bool is_wrong =
          is_whole_host ? topology_.host_of[rank] == topology_.host_of[wrong_rank] : rank == wrong_rank;
      return differs && is_wrong && number == wrong_call ? other : calls[number];
    };
    const auto submit_next = [&](Rank rank) {
      const size_t number = members_[rank]->calls.size();
      if (number < calls.size()) submit(rank, number, call_of(rank, number));
    };
    while (!in.empty()) {
      const uint32_t what = in.below(mode == 3 ? 5 : 4);
      const Rank rank = in.below(topology_.ranks());
      if (what == 0) submit_next(rank);
      if (what == 1 || what == 2) progress(rank, 1 + in.below(16));
      if (what == 3) static_cast<void>(rails_.step(rank % topology_.rails));
      if (what == 4) damage(*segments_[topology_.host_of[rank]], in);
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      for (Rank rank = 0; rank < topology_.ranks(); ++rank) submit_next(rank);
    }
    bool works = true;
    uint32_t steps = 0;
    for (; works && steps < kSteps; ++steps) {
      works = false;
      for (Rank rank = 0; rank < topology_.ranks(); ++rank) works |= progress(rank, 1);
      for (uint32_t rail = 0; rail < topology_.rails; ++rail) works |= rails_.step(rail);
    }
    require(mode == 3 || steps < kSteps);
    if (mode != 3) require(has_ended_ == differs);
    if (mode != 3) check(differs ? wrong_call : calls.size());
    end();
    for (const auto& member : members_) require(member->table.open_count() == 0);
  }

 private:
  void submit(Rank rank, size_t number, const Call& c) {
    Member& m = *members_[rank];
    Submitted& s = m.calls.emplace_back();
    s.call = c;
    const size_t element = wire::size_of(c.dtype);
    for (Rank before = 0; wire::has_parts(c.kind) && before < rank; ++before) s.first += c.counts[before];
    const size_t part = wire::has_parts(c.kind) ? c.counts[rank] : c.count();
    engine::OpRequest r{.count = c.count(), .dtype = c.dtype, .op = c.op, .kind = c.kind, .root = c.root};
    r.is_converted = c.dtype == DType::kF16 && c.op == wire::Op::kSum && c.count() % 2 == 0;
    const bool equal = std::ranges::adjacent_find(c.counts, std::not_equal_to<>()) == c.counts.end();
    if (wire::has_parts(c.kind) && !equal) r.counts = c.counts;
    const bool sends_part = c.kind == Kind::kAllGather;
    s.send = contribution(c, number, rank, sends_part ? s.first : 0, sends_part ? part : c.count());
    s.recv.resize((c.kind == Kind::kReduceScatter ? part : c.count()) * element);
    r.send = s.send.data();
    r.recv = s.recv.data();
    if (c.kind == Kind::kBroadcast) {  // one buffer
      if (rank == c.root) s.recv = s.send;
      r.recv = s.recv.data();
      r.send = s.recv.data();
    }
    const auto index = m.table.open(r);
    require(index.has_value());
    s.index = *index;
    s.handle = m.table.handle_of(*index);
    m.stage->submit(*index);
    if (has_ended_) m.stage->end_all(Errc::kMismatch);
  }

  bool progress(Rank rank, uint32_t steps) {
    Member& m = *members_[rank];
    bool works = false;
    while (steps-- > 0 && m.stage->progress()) works = true;
    if (m.stage->mismatch() || !m.stage->rail_status().ok()) end();
    for (Submitted& s : m.calls) {
      Status status;
      if (!s.ended && m.table.release_if_ended(s.handle, status)) s.ended = status;
    }
    return works;
  }

  void damage(local::Segment& segment, Input& in) {
    // The failure record is the first thing in the segment, and its last byte that of a result.
    auto* const memory = reinterpret_cast<std::byte*>(&segment.failure());
    const size_t control = static_cast<size_t>(segment.contribution(0, 0) - memory);
    const size_t size = in.below(4) == 0 ? segment.bytes() : control;
    const size_t at = in.take<uint32_t>() % size;
    const auto bytes = in.at_most(std::min<size_t>(1 + in.below(8), size - at));
    std::copy(bytes.begin(), bytes.end(), memory + at);
    std::string list;
    uint32_t seen = in.u8();
    static_cast<void>(segment.pool().read(seen, list));
    require(list.size() <= local::kMaxPoolText);
  }

  void end() {
    has_ended_ = true;
    for (const auto& m : members_) m->stage->end_all(Errc::kMismatch);
  }

  // Calls before `wrong` have the right results; no rank has got one of `wrong`.
  void check(size_t wrong) {
    for (Rank rank = 0; rank < topology_.ranks(); ++rank) {
      Member& m = *members_[rank];
      for (size_t number = 0; number < m.calls.size(); ++number) {
        Submitted& s = m.calls[number];
        if (number >= wrong) {
          require(number > wrong || !s.ended || *s.ended != Errc::kOk);
        } else if (!has_ended_ || (s.ended && *s.ended == Errc::kOk)) {
          require(s.ended && *s.ended == Errc::kOk);
          check_result(s, number, rank);
        }
      }
    }
  }

  void check_result(const Submitted& s, size_t number, Rank rank) {
    const Call& c = s.call;
    Bytes expected;
    if (c.kind == Kind::kAllGather) {
      size_t first = 0;
      for (Rank other = 0; other < topology_.ranks(); first += c.counts[other++]) {
        const Bytes part = contribution(c, number, other, first, c.counts[other]);
        expected.insert(expected.end(), part.begin(), part.end());
      }
    } else if (c.kind == Kind::kBroadcast) {
      expected = contribution(c, number, c.root, 0, c.count());
    } else {
      if (c.kind == Kind::kReduce && rank != c.root) return;
      const bool is_part = c.kind == Kind::kReduceScatter;
      const size_t count = is_part ? c.counts[rank] : c.count();
      std::vector<Bytes> all;
      std::vector<const std::byte*> sources;
      for (Rank other = 0; other < topology_.ranks(); ++other)
        all.push_back(contribution(c, number, other, is_part ? s.first : 0, count));
      for (const Bytes& of_rank : all) sources.push_back(of_rank.data());
      expected.resize(count * wire::size_of(c.dtype));
      if (count > 0) {
        kernels::find_fold(c.dtype, c.op, kernels::Stage::kWhole)(sources, count, topology_.ranks(),
                                                                  expected.data());
      }
    }
    require(s.recv == expected);
  }

  const local::Topology topology_;
  LocalRails rails_;
  std::vector<std::unique_ptr<local::Segment>> segments_;  // by host
  std::vector<std::unique_ptr<Member>> members_;           // by rank
  bool has_ended_ = false;
};

}  // namespace

void fuzz_one(Input in) {
  // Hosts are numbered by their first ranks. Nine ranks at most.
  std::vector<uint32_t> hosts(2 + in.below(5));
  uint32_t next = 0;
  for (uint32_t& host : hosts) {
    host = in.below(3);
    if (host >= next) host = next++;
  }
  World(std::move(hosts)).run(in);
}

}  // namespace sluice::fuzz
