#include "gpu_client/cuda/memory.h"

#include <array>
#include <cstring>
#include <utility>

namespace sluice::cuda {
namespace {

using Where = pipeline::Device::Where;

class PinnedMemory final : public pipeline::Pinned {
 public:
  PinnedMemory(std::shared_ptr<Context> context, std::span<std::byte> bytes) noexcept
      : context_(std::move(context)) {
    bytes_ = bytes;
  }
  ~PinnedMemory() override {
    (void)context_->within([this](const Driver& d) { return d.mem_free_host(bytes_.data()); });
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  const std::shared_ptr<Context> context_;
};

// What the driver knows of an address; of one that it does not know, nothing.
struct Range {
  unsigned int type = 0;     // CUmemorytype
  unsigned int managed = 0;  // a bool, of which the driver writes the first bytes alone
  int ordinal = -1;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
};

CUresult find_range(const Driver& d, CUdeviceptr at, Range& range) {
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, attributes.size()> values{&range.type, &range.managed, &range.ordinal, &range.begin,
                                              &range.bytes};
  const CUresult r = d.pointer_get_attributes(attributes.size(), attributes.data(), values.data(), at);
  if (r != CUDA_ERROR_INVALID_VALUE) return r;
  range = {};  // memory that nobody has registered, to drivers that call that an error
  return CUDA_SUCCESS;
}

std::string at_text(CUdeviceptr at) {
  char text[2 + 16 + 1];
  (void)std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(at));
  return text;
}

}  // namespace

Result<std::unique_ptr<pipeline::Pinned>> pin(std::shared_ptr<Context> context, size_t bytes) {
  void* at = nullptr;
  const CUresult r = context->within([&](const Driver& d) {
    return d.mem_host_alloc(&at, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  });
  const std::string what = "cannot pin " + std::to_string(bytes) + " bytes";
  if (const Status s = context->check(r, what.c_str()); !s.ok()) return fail(s.code(), context->last_words());
  std::memset(at, 0, bytes);
  return std::make_unique<PinnedMemory>(std::move(context), std::span(static_cast<std::byte*>(at), bytes));
}

Result<std::unique_ptr<pipeline::Event>> CudaEvent::make(std::shared_ptr<Context> context) {
  CUevent handle = nullptr;
  const CUresult r = context->within([&](const Driver& d) {
    // Who awaits it sleeps instead of spinning.
    return d.event_create(&handle, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  });
  if (const Status s = context->check(r, "no event"); !s.ok()) return fail(s.code(), context->last_words());
  return std::make_unique<CudaEvent>(std::move(context), handle);
}

CudaEvent::CudaEvent(std::shared_ptr<Context> context, CUevent handle) noexcept
    : context_(std::move(context)), handle_(handle) {}

CudaEvent::~CudaEvent() {
  (void)context_->within([this](const Driver& d) { return d.event_destroy(handle_); });
}

Result<Where> look_at(Context& context, const void* at, uint64_t bytes) {
  Range range;
  const auto address = reinterpret_cast<CUdeviceptr>(at);
  const CUresult r = context.within([&](const Driver& d) { return find_range(d, address, range); });
  if (const Status s = context.check(r, "memory can't be looked up"); !s.ok())
    return fail(s.code(), context.last_words());
  const bool managed = (range.managed & 0xff) != 0;
  if (range.type == 0 || (range.type == CU_MEMORYTYPE_HOST && !managed)) return Where::kHost;
  if (range.type == CU_MEMORYTYPE_ARRAY)
    return fail(Errc::kInvalidArgument, "memory at " + at_text(address) + " is an array of the GPU's");
  if (!managed && range.ordinal != context.ordinal())
    return fail(Errc::kInvalidArgument, "memory at " + at_text(address) + " is of GPU " +
                                            std::to_string(range.ordinal) + ", the streams are of GPU " +
                                            std::to_string(context.ordinal()));
  // A range may be one that was reserved, and mapped in parts: what lies in it is taken as mapped.
  const uint64_t left = range.begin + range.bytes - address;
  if (bytes > left)
    return fail(Errc::kInvalidArgument, std::to_string(bytes) + " bytes at " + at_text(address) +
                                            " reach beyond their allocation, which has " +
                                            std::to_string(left) + " from there");
  return Where::kDevice;
}

}  // namespace sluice::cuda
