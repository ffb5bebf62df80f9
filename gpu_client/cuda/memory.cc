#include "gpu_client/cuda/memory.h"

#include <array>
#include <cstring>
#include <utility>

namespace sluice::cuda {
namespace {

using MemoryLocation = pipeline::Device::MemoryLocation;

class CudaPinnedMemory final : public pipeline::PinnedMemory {
 public:
  CudaPinnedMemory(std::shared_ptr<Context> context, std::span<std::byte> bytes) noexcept
      : context_(std::move(context)) {
    bytes_ = bytes;
  }
  ~CudaPinnedMemory() override {
    (void)context_->invoke([this](const Driver& d) { return d.mem_free_host(bytes_.data()); });
  }
  CudaPinnedMemory(const CudaPinnedMemory&) = delete;
  CudaPinnedMemory& operator=(const CudaPinnedMemory&) = delete;

 private:
  const std::shared_ptr<Context> context_;
};

// Attributes of an address. They keep their defaults if the driver does not know the address.
struct AddressAttributes {
  unsigned int type = 0;     // CUmemorytype
  unsigned int managed = 0;  // the driver writes a bool into the first byte
  int ordinal = -1;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
};

CUresult query_attributes(const Driver& d, CUdeviceptr address, AddressAttributes& out) {
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, attributes.size()> values{&out.type, &out.managed, &out.ordinal, &out.begin, &out.bytes};
  const CUresult r = d.pointer_get_attributes(attributes.size(), attributes.data(), values.data(), address);
  if (r != CUDA_ERROR_INVALID_VALUE) return r;
  out = {};  // unregistered host memory: drivers before CUDA 11 return an error for it
  return CUDA_SUCCESS;
}

std::string hex_address(CUdeviceptr address) {
  char text[2 + 16 + 1];
  (void)std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(address));
  return text;
}

}  // namespace

Result<std::unique_ptr<pipeline::PinnedMemory>> allocate_pinned(std::shared_ptr<Context> context,
                                                                size_t bytes) {
  void* data = nullptr;
  const CUresult r = context->invoke([&](const Driver& d) {
    return d.mem_host_alloc(&data, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  });
  const std::string what = "cannot pin " + std::to_string(bytes) + " bytes";
  if (const Status s = context->check(r, what.c_str()); !s.ok()) return fail(s.code(), context->last_error());
  std::memset(data, 0, bytes);
  return std::make_unique<CudaPinnedMemory>(std::move(context),
                                            std::span(static_cast<std::byte*>(data), bytes));
}

Result<std::unique_ptr<pipeline::Event>> CudaEvent::make(std::shared_ptr<Context> context) {
  CUevent handle = nullptr;
  const CUresult r = context->invoke([&](const Driver& d) {
    // BLOCKING_SYNC: a thread that synchronizes with the event sleeps instead of spinning.
    return d.event_create(&handle, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  });
  if (const Status s = context->check(r, "cannot create an event"); !s.ok())
    return fail(s.code(), context->last_error());
  return std::make_unique<CudaEvent>(std::move(context), handle);
}

CudaEvent::CudaEvent(std::shared_ptr<Context> context, CUevent handle) noexcept
    : context_(std::move(context)), handle_(handle) {}

CudaEvent::~CudaEvent() {
  (void)context_->invoke([this](const Driver& d) { return d.event_destroy(handle_); });
}

Result<MemoryLocation> locate(Context& context, const void* address, uint64_t bytes) {
  AddressAttributes attributes;
  const auto begin = reinterpret_cast<CUdeviceptr>(address);
  const CUresult r = context.invoke([&](const Driver& d) { return query_attributes(d, begin, attributes); });
  if (const Status s = context.check(r, "cannot query the attributes of a memory address"); !s.ok())
    return fail(s.code(), context.last_error());
  const bool managed = (attributes.managed & 0xff) != 0;
  if (attributes.type == 0 || (attributes.type == CU_MEMORYTYPE_HOST && !managed))
    return MemoryLocation::kHost;
  if (attributes.type == CU_MEMORYTYPE_ARRAY)
    return fail(Errc::kInvalidArgument,
                "memory at " + hex_address(begin) + " is a CUDA array; expected linear memory");
  if (!managed && attributes.ordinal != context.ordinal())
    return fail(Errc::kInvalidArgument,
                "memory at " + hex_address(begin) + " belongs to GPU " + std::to_string(attributes.ordinal) +
                    ", the streams belong to GPU " + std::to_string(context.ordinal()));
  // A reserved range may be mapped only in parts; the check assumes that all of it is mapped.
  const uint64_t left = attributes.begin + attributes.bytes - begin;
  if (bytes > left)
    return fail(Errc::kInvalidArgument, std::to_string(bytes) + " bytes at " + hex_address(begin) +
                                            " exceed their allocation, which has " + std::to_string(left) +
                                            " bytes from there");
  return MemoryLocation::kDevice;
}

}  // namespace sluice::cuda
