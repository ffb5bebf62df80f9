#include "gpu_client/cuda/cuda_device.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#include "gpu_client/cuda/context.h"
#include "gpu_client/cuda/kernel_set.h"

namespace sluice::cuda {
namespace {

using pipeline::BufferRange;
using pipeline::Cast;
using pipeline::CastError;
using pipeline::Event;
using pipeline::PinnedMemory;
using MemoryLocation = pipeline::Device::MemoryLocation;

// Pinned memory and events keep their context retained, so they may outlive the device.
class CudaPinnedMemory final : public PinnedMemory {
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

Result<std::unique_ptr<PinnedMemory>> allocate_pinned(std::shared_ptr<Context> context, size_t bytes) {
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

class CudaEvent final : public Event {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Event>> make(std::shared_ptr<Context> context) {
    CUevent handle = nullptr;
    const CUresult r = context->invoke([&](const Driver& d) {
      // BLOCKING_SYNC: a thread that synchronizes with the event sleeps instead of spinning.
      return d.event_create(&handle, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    });
    if (const Status s = context->check(r, "cannot create an event"); !s.ok())
      return fail(s.code(), context->last_error());
    return std::make_unique<CudaEvent>(std::move(context), handle);
  }
  CudaEvent(std::shared_ptr<Context> context, CUevent handle) noexcept
      : context_(std::move(context)), handle_(handle) {}
  ~CudaEvent() override {
    (void)context_->invoke([this](const Driver& d) { return d.event_destroy(handle_); });
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  [[nodiscard]] CUevent handle() const noexcept { return handle_; }

 private:
  const std::shared_ptr<Context> context_;
  const CUevent handle_;
};

// Implements Device::locate for the context's GPU.
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

CUevent handle_of(Event& event) {
  return static_cast<CudaEvent&>(event).handle();
}

CUstream handle_of(pipeline::Device::Stream stream) {
  return static_cast<CUstream>(stream);
}

class CudaDevice final : public pipeline::Device {
 public:
  explicit CudaDevice(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  ~CudaDevice() override {
    synchronize_copy_streams();
    kernels_.reset();
    for (CUstream const stream : {out_, in_}) {
      if (stream == nullptr) continue;
      (void)context_->invoke([stream](const Driver& d) { return d.stream_destroy(stream); });
    }
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  [[nodiscard]] Result<void> prepare() {
    for (CUstream* const stream : {&out_, &in_}) {
      const Status s = invoke("cannot create a stream", [&](const Driver& d) {
        return d.stream_create(stream, CU_STREAM_NON_BLOCKING);
      });
      if (!s.ok()) return fail(s.code(), last_error());
    }
    // Makes results that a network card wrote by RDMA visible to the work after the wait.
    if (context_->attribute(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES) != 0)
      wait_value_flags_ |= CU_STREAM_WAIT_VALUE_FLUSH;
    auto kernels = KernelSet::load(context_, out_);
    if (!kernels) return tl::unexpected(std::move(kernels.error()));
    kernels_ = std::move(*kernels);
    return {};
  }

  Result<std::unique_ptr<PinnedMemory>> allocate_pinned(size_t bytes) override {
    return cuda::allocate_pinned(context_, bytes);
  }
  Result<std::unique_ptr<Event>> make_event() override { return CudaEvent::make(context_); }
  void synchronize_copy_streams() noexcept override {
    for (CUstream const stream : {out_, in_}) {
      if (stream == nullptr) continue;
      (void)context_->invoke([stream](const Driver& d) { return d.stream_synchronize(stream); });
    }
  }
  Stream copy_out_stream() noexcept override { return out_; }
  Stream copy_in_stream() noexcept override { return in_; }
  Result<void> check_stream(Stream stream) override {
    CUcontext owner = nullptr;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult known = CUDA_SUCCESS;
    CUresult capturing = CUDA_SUCCESS;
    const CUresult made_current = context_->invoke([&](const Driver& d) {
      known = d.stream_get_ctx(handle_of(stream), &owner);
      if (known == CUDA_SUCCESS && owner == context_->handle())
        capturing = d.stream_is_capturing(handle_of(stream), &capture);
      return CUDA_SUCCESS;
    });
    if (const Status s = context_->check(made_current, "cannot query a stream"); !s.ok())
      return fail(s.code(), last_error());
    if (known == CUDA_ERROR_INVALID_HANDLE || known == CUDA_ERROR_INVALID_VALUE ||
        known == CUDA_ERROR_INVALID_CONTEXT || known == CUDA_ERROR_CONTEXT_IS_DESTROYED)
      return fail(Errc::kInvalidArgument, "not a CUDA stream: " + describe(context_->driver(), known));
    if (known == CUDA_SUCCESS && owner != context_->handle())
      return fail(Errc::kInvalidArgument, "the stream belongs to another GPU than GPU " +
                                              std::to_string(context_->ordinal()) +
                                              ", or not to its primary context");
    const bool implicit = capturing == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (implicit || (capturing == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE))
      return fail(Errc::kUnsupported, "the stream is being captured into a graph");
    if (const Status s = context_->check(known != CUDA_SUCCESS ? known : capturing, "cannot use a stream");
        !s.ok())
      return fail(s.code(), last_error());
    return {};
  }
  Result<MemoryLocation> locate(const void* address, uint64_t bytes) override {
    return cuda::locate(*context_, address, bytes);
  }
  Status record(Event& event, Stream stream) override {
    return invoke("cannot record an event",
                  [&](const Driver& d) { return d.event_record(handle_of(event), handle_of(stream)); });
  }
  Status wait(Stream stream, Event& event) override {
    return invoke("cannot make a stream wait for an event", [&](const Driver& d) {
      return d.stream_wait_event(handle_of(stream), handle_of(event), 0);
    });
  }
  Status wait_value(Stream stream, uint32_t* word, uint32_t value) override {
    return invoke("cannot make a stream wait for a word in memory", [&](const Driver& d) {
      return d.stream_wait_value32(handle_of(stream), reinterpret_cast<CUdeviceptr>(word), value,
                                   wait_value_flags_);
    });
  }
  Status gather(Stream stream, std::span<const BufferRange> ranges, std::byte* staging,
                const Cast& cast) override {
    return invoke("cannot enqueue a copy from the GPU", [&](const Driver&) {
      return kernels_->transfer(handle_of(stream), ranges, KernelSet::Side::kSend, staging, cast);
    });
  }
  Status scatter(Stream stream, const std::byte* staging, std::span<const BufferRange> ranges,
                 const Cast& cast) override {
    return invoke("cannot enqueue a copy to the GPU", [&](const Driver&) {
      return kernels_->transfer(handle_of(stream), ranges, KernelSet::Side::kRecv,
                                const_cast<std::byte*>(staging), cast);
    });
  }
  Status find_exponents(Stream stream, std::span<const BufferRange> ranges, uint8_t* exponents) override {
    return invoke("cannot enqueue the search for exponents", [&](const Driver&) {
      return kernels_->find_exponents(handle_of(stream), ranges, exponents);
    });
  }
  Status synchronize(Event& event) override {
    return invoke("work on the GPU failed",
                  [&](const Driver& d) { return d.event_synchronize(handle_of(event)); });
  }
  // A failed event counts as complete; synchronize() returns the error.
  bool is_complete(Event& event) override {
    return context_->invoke([&](const Driver& d) { return d.event_query(handle_of(event)); }) !=
           CUDA_ERROR_NOT_READY;
  }
  void write_value(uint32_t* word, uint32_t value) noexcept override {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  Result<CastError> cast_error() override {
    CastError error;
    const Status s = invoke("cannot read the conversion errors", [&](const Driver& d) {
      const CUresult r = d.stream_synchronize(in_);
      return r == CUDA_SUCCESS ? kernels_->read_error(out_, error) : r;
    });
    if (!s.ok()) return fail(s.code(), last_error());
    return error;
  }
  std::string last_error() const override { return context_->last_error(); }

 private:
  // Runs call(driver) with the context current; stores an error as the last error, with `what` as its
  // description.
  template <typename Call>
  Status invoke(const char* what, Call&& call) {
    return context_->check(context_->invoke(std::forward<Call>(call)), what);
  }

  const std::shared_ptr<Context> context_;
  std::unique_ptr<KernelSet> kernels_;
  CUstream out_ = nullptr;
  CUstream in_ = nullptr;
  unsigned int wait_value_flags_ = CU_STREAM_WAIT_VALUE_GEQ;
};

}  // namespace

Result<std::unique_ptr<pipeline::Device>> open_cuda_device(int ordinal) {
  auto context = Context::retain(ordinal);
  if (!context) return tl::unexpected(std::move(context.error()));
  auto device = std::make_unique<CudaDevice>(std::move(*context));
  if (auto prepared = device->prepare(); !prepared) return tl::unexpected(std::move(prepared.error()));
  return device;
}

}  // namespace sluice::cuda
