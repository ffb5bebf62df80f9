#include "gpu_client/api/request.h"

#include <cstdint>

#include "wire/dtype.h"

namespace sluice::api {
namespace {

constexpr const char* kNoRoot = "root is no rank of the session";
constexpr const char* kTooLarge = "count times element size exceeds 63 bits";

// Names the type and the operator.
const char* unsupported_operator(wire::DType dtype, wire::Op op) noexcept {
  static constexpr const char* kMxfp8[] = {"mxfp8 does not support prod; expected sum or avg",
                                           "mxfp8 does not support min; expected sum or avg",
                                           "mxfp8 does not support max; expected sum or avg"};
  static constexpr const char* kInt8Block[] = {"int8-block does not support prod; expected sum or avg",
                                               "int8-block does not support min; expected sum or avg",
                                               "int8-block does not support max; expected sum or avg"};
  const auto index = static_cast<size_t>(op) - static_cast<size_t>(wire::Op::kProd);
  return dtype == wire::DType::kMxfp8 ? kMxfp8[index] : kInt8Block[index];
}

// Whether two buffers overlap.
bool overlap(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) noexcept {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

const char* read_types(sluice_dtype dtype, sluice_op op, engine::OpRequest& out) noexcept {
  const auto type = static_cast<unsigned>(dtype);
  const auto operation = static_cast<unsigned>(op);
  if (type >= wire::kDTypeCount) return "unknown dtype";
  if (operation >= wire::kOpCount) return "unknown op";
  out.dtype = static_cast<wire::DType>(type);
  out.op = static_cast<wire::Op>(operation);
  if (!wire::is_supported(out.dtype, out.op)) return unsupported_operator(out.dtype, out.op);
  return nullptr;
}

const char* read_request(const void* send, void* recv, size_t count, sluice_dtype dtype, sluice_op op,
                         engine::OpRequest& out) noexcept {
  if (const char* const reason = read_types(dtype, op, out)) return reason;
  out.send = static_cast<const std::byte*>(send);
  out.recv = static_cast<std::byte*>(recv);
  out.count = count;
  if (count == 0) return nullptr;
  const size_t element = wire::size_of(out.dtype);
  if (count > static_cast<size_t>(PTRDIFF_MAX) / element) return kTooLarge;
  if (send == nullptr) return "send is NULL";
  if (recv == nullptr) return "recv is NULL";
  if (out.send != out.recv && overlap(out.send, count * element, out.recv, count * element))
    return "send and recv overlap; expected the same buffer or separate ones";
  return nullptr;
}

const char* read_parts(const void* send, void* recv, size_t count, std::span<const size_t> counts, Rank rank,
                       uint32_t ranks, engine::OpRequest& out) noexcept {
  const size_t element = wire::size_of(out.dtype);
  const size_t most = static_cast<size_t>(PTRDIFF_MAX) / element;
  if (counts.empty() && count > most / ranks) return kTooLarge;
  size_t before = counts.empty() ? count * rank : 0;  // elements of the parts before this rank's
  const size_t own = counts.empty() ? count : counts[rank];
  out.send = static_cast<const std::byte*>(send);
  out.recv = static_cast<std::byte*>(recv);
  out.count = counts.empty() ? count * ranks : 0;
  out.counts = counts;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > most - out.count) return kTooLarge;
    if (r < rank) before += counts[r];
    out.count += counts[r];
  }
  if (out.count == 0) return nullptr;
  const bool gathers = out.kind == wire::Kind::kAllGather;
  if (send == nullptr && (!gathers || own > 0)) return "send is NULL";
  if (recv == nullptr && (gathers || own > 0)) return "recv is NULL";
  const std::byte* const whole = gathers ? out.recv : out.send;
  const std::byte* const part = gathers ? out.send : out.recv;
  if (part != whole + before * element && own > 0 && overlap(whole, out.count * element, part, own * element))
    return "send and recv overlap; expected this rank's part of the larger buffer, or separate buffers";
  return nullptr;
}

const char* read_parts_of_session(const engine::CollectiveSession& session, wire::Kind kind, const void* send,
                                  void* recv, size_t count, const size_t* counts, sluice_dtype dtype,
                                  sluice_op op, engine::OpRequest& out) noexcept {
  out.kind = kind;
  if (const char* const reason = read_types(dtype, op, out)) return reason;
  const std::span<const size_t> parts(counts, counts != nullptr ? session.ranks() : 0);
  return read_parts(send, recv, count, parts, session.rank(), session.ranks(), out);
}

const char* read_reduce(const engine::CollectiveSession& session, const void* send, void* recv, size_t count,
                        sluice_dtype dtype, sluice_op op, uint32_t root, engine::OpRequest& out) noexcept {
  out.kind = wire::Kind::kReduce;
  out.root = root;
  if (root >= session.ranks()) return kNoRoot;
  // Other ranks receive nothing.
  void* const used = session.rank() == root ? recv : const_cast<void*>(send);
  return read_request(send, used, count, dtype, op, out);
}

const char* read_broadcast(const engine::CollectiveSession& session, void* buffer, size_t count,
                           sluice_dtype dtype, uint32_t root, engine::OpRequest& out) noexcept {
  out.kind = wire::Kind::kBroadcast;
  out.root = root;
  if (root >= session.ranks()) return kNoRoot;
  return read_request(buffer, buffer, count, dtype, SLUICE_SUM, out);
}

}  // namespace sluice::api
