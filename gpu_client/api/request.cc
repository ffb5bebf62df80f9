#include "gpu_client/api/request.h"

#include <cstdint>

#include "wire/dtype.h"

namespace sluice::api {
namespace {

// Whether two buffers of one size overlap and are not the same.
bool overlap_partially(const std::byte* a, const std::byte* b, uint64_t bytes) noexcept {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return x != y && x < y + bytes && y < x + bytes;
}

}  // namespace

const char* read_request(const void* send, void* recv, size_t count, sluice_dtype dtype, sluice_op op,
                         engine::OpRequest& out) noexcept {
  const auto type = static_cast<unsigned>(dtype);
  const auto operation = static_cast<unsigned>(op);
  if (type >= wire::kDTypeCount) return "unknown dtype";
  if (operation >= wire::kOpCount) return "unknown op";
  out.send = static_cast<const std::byte*>(send);
  out.recv = static_cast<std::byte*>(recv);
  out.count = count;
  out.dtype = static_cast<wire::DType>(type);
  out.op = static_cast<wire::Op>(operation);
  if (count == 0) return nullptr;
  const size_t element = wire::size_of(out.dtype);
  if (count > static_cast<size_t>(PTRDIFF_MAX) / element) return "count times element size exceeds 63 bits";
  if (send == nullptr) return "send is NULL";
  if (recv == nullptr) return "recv is NULL";
  if (overlap_partially(out.send, out.recv, count * element))
    return "send and recv overlap; expected the same buffer or separate ones";
  return nullptr;
}

}  // namespace sluice::api
