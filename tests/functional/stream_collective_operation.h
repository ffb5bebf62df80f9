// The collectives other than allreduce with random contributions, on streams and without, for tests.
#pragma once

#include "tests/functional/stream_collectives_test_bed.h"

namespace sluice::test {

inline std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

enum class Kind : uint8_t { kReduceScatter, kAllGather, kReduce, kBroadcast };
inline constexpr Kind kKinds[] = {Kind::kReduceScatter, Kind::kAllGather, Kind::kReduce, Kind::kBroadcast};

// One operation. Without `in_place` it has separate buffers.
struct Operation {
  Kind kind{};
  sluice_dtype dtype{};
  sluice_op op{};
  std::vector<size_t> counts;  // elements of each rank's part
  uint32_t root = 0;
  bool in_place = false;
  uint32_t seed = 0;

  [[nodiscard]] size_t size() const { return wire::size_of(static_cast<wire::DType>(dtype)); }
  [[nodiscard]] size_t count() const { return std::accumulate(counts.begin(), counts.end(), size_t{0}); }
  [[nodiscard]] size_t before(uint32_t rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, size_t{0}) * size();
  }
  [[nodiscard]] size_t whole() const { return count() * size(); }
  [[nodiscard]] size_t part(uint32_t rank) const { return counts[rank] * size(); }
};

// An operation that a rank has issued.
struct Issued {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  sluice_status status = SLUICE_INTERNAL;
};

// Issues the operation with random contributions: on the memory's stream, or with a request as one of
// sluice.h.
inline Issued issue(sluice_session* s, RankMemory& memory, uint32_t rank, const Operation& o, bool on_stream,
                    sluice_request* request = nullptr) {
  const bool is_gather = o.kind == Kind::kAllGather;
  const size_t contributed = is_gather ? o.part(rank) : o.whole();
  const Bytes input = noise(o.seed * 10 + rank, contributed);
  Issued i;
  if (is_gather && o.in_place) {
    Bytes whole(o.whole());
    std::ranges::copy(input, whole.begin() + static_cast<ptrdiff_t>(o.before(rank)));
    i.recv = memory.upload(whole);
    i.send = i.recv + o.before(rank);
  } else {
    i.send = memory.upload(input);
    const bool parts = o.kind == Kind::kReduceScatter;
    if (o.in_place || o.kind == Kind::kBroadcast) {
      i.recv = i.send + (parts ? o.before(rank) : 0);
    } else {
      i.recv = memory.upload(Bytes(parts ? o.part(rank) : o.whole()));
    }
  }
  const size_t* const counts = o.counts.data();
  sluice_stream const stream = memory.stream();
  switch (o.kind) {
    case Kind::kReduceScatter:
      i.status = on_stream
                     ? sluice_reduce_scatter_on_stream(s, i.send, i.recv, 0, counts, o.dtype, o.op, nullptr,
                                                       stream, request)
                     : sluice_reduce_scatter_async(s, i.send, i.recv, 0, counts, o.dtype, o.op, request);
      break;
    case Kind::kAllGather:
      i.status = on_stream
                     ? sluice_all_gather_on_stream(s, i.send, i.recv, 0, counts, o.dtype, stream, request)
                     : sluice_all_gather_async(s, i.send, i.recv, 0, counts, o.dtype, request);
      break;
    case Kind::kReduce: {
      std::byte* const recv = rank == o.root ? i.recv : nullptr;
      i.status = on_stream ? sluice_reduce_on_stream(s, i.send, recv, o.count(), o.dtype, o.op, o.root,
                                                     nullptr, stream, request)
                           : sluice_reduce_async(s, i.send, recv, o.count(), o.dtype, o.op, o.root, request);
      break;
    }
    case Kind::kBroadcast:
      i.status = on_stream
                     ? sluice_broadcast_on_stream(s, i.send, o.count(), o.dtype, o.root, stream, request)
                     : sluice_broadcast_async(s, i.send, o.count(), o.dtype, o.root, request);
      break;
  }
  return i;
}

// What the rank has received, or nothing.
inline Bytes result(RankMemory& memory, uint32_t rank, const Operation& o, const Issued& i) {
  const bool receives = o.kind != Kind::kReduce || rank == o.root;
  return memory.download(i.recv, receives ? (o.kind == Kind::kReduceScatter ? o.part(rank) : o.whole()) : 0);
}

// Bytes that a rank must copy from a GPU, and to it.
inline uint64_t bytes_out(const Operation& o, uint32_t rank) {
  if (o.kind == Kind::kAllGather) return o.part(rank);
  return o.kind == Kind::kBroadcast && rank != o.root ? 0 : o.whole();
}
inline uint64_t bytes_in(const Operation& o, uint32_t rank) {
  switch (o.kind) {
    case Kind::kReduceScatter: return o.part(rank);
    case Kind::kAllGather: return o.whole() - (o.in_place ? o.part(rank) : 0);
    case Kind::kReduce: return rank == o.root ? o.whole() : 0;
    case Kind::kBroadcast: return rank == o.root ? 0 : o.whole();
  }
  return 0;
}

}  // namespace sluice::test
