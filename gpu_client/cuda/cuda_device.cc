#include "gpu_client/cuda/cuda_device.h"

#include <atomic>
#include <utility>

#include "gpu_client/cuda/context.h"
#include "gpu_client/cuda/kernel_set.h"
#include "gpu_client/cuda/memory.h"

namespace sluice::cuda {
namespace {

using pipeline::BufferRange;
using pipeline::Cast;
using pipeline::CastError;
using pipeline::Event;
using pipeline::PinnedMemory;

CUevent handle_of(Event& event) {
  return static_cast<CudaEvent&>(event).handle();
}

CUstream handle_of(pipeline::Device::Stream stream) {
  return static_cast<CUstream>(stream);
}

class CudaDevice final : public pipeline::Device {
 public:
  explicit CudaDevice(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  [[nodiscard]] Result<void> prepare();

  Result<std::unique_ptr<PinnedMemory>> allocate_pinned(size_t bytes) override {
    return cuda::allocate_pinned(context_, bytes);
  }
  Result<std::unique_ptr<Event>> make_event() override { return CudaEvent::make(context_); }
  void synchronize_copy_streams() noexcept override;
  Stream copy_out_stream() noexcept override { return out_; }
  Stream copy_in_stream() noexcept override { return in_; }
  Result<void> check_stream(Stream stream) override;
  Result<MemoryLocation> locate(const void* address, uint64_t bytes) override {
    return cuda::locate(*context_, address, bytes);
  }
  Status record(Event& event, Stream stream) override;
  Status wait(Stream stream, Event& event) override;
  Status wait_value(Stream stream, uint32_t* word, uint32_t value) override;
  Status gather(Stream stream, std::span<const BufferRange> ranges, std::byte* staging,
                const Cast& cast) override;
  Status scatter(Stream stream, const std::byte* staging, std::span<const BufferRange> ranges,
                 const Cast& cast) override;
  Status find_exponents(Stream stream, std::span<const BufferRange> ranges, uint8_t* exponents) override;
  Status synchronize(Event& event) override;
  bool is_complete(Event& event) override;
  void write_value(uint32_t* word, uint32_t value) noexcept override;
  Result<CastError> cast_error() override;
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

Result<void> CudaDevice::prepare() {
  for (CUstream* const stream : {&out_, &in_}) {
    const Status s = invoke("cannot create a stream",
                            [&](const Driver& d) { return d.stream_create(stream, CU_STREAM_NON_BLOCKING); });
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

void CudaDevice::synchronize_copy_streams() noexcept {
  for (CUstream const stream : {out_, in_}) {
    if (stream == nullptr) continue;
    (void)context_->invoke([stream](const Driver& d) { return d.stream_synchronize(stream); });
  }
}

CudaDevice::~CudaDevice() {
  synchronize_copy_streams();
  kernels_.reset();
  for (CUstream const stream : {out_, in_}) {
    if (stream == nullptr) continue;
    (void)context_->invoke([stream](const Driver& d) { return d.stream_destroy(stream); });
  }
}

Result<void> CudaDevice::check_stream(Stream stream) {
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

Status CudaDevice::record(Event& event, Stream stream) {
  return invoke("cannot record an event",
                [&](const Driver& d) { return d.event_record(handle_of(event), handle_of(stream)); });
}

Status CudaDevice::wait(Stream stream, Event& event) {
  return invoke("cannot make a stream wait for an event",
                [&](const Driver& d) { return d.stream_wait_event(handle_of(stream), handle_of(event), 0); });
}

Status CudaDevice::wait_value(Stream stream, uint32_t* word, uint32_t value) {
  return invoke("cannot make a stream wait for a word in memory", [&](const Driver& d) {
    return d.stream_wait_value32(handle_of(stream), reinterpret_cast<CUdeviceptr>(word), value,
                                 wait_value_flags_);
  });
}

Status CudaDevice::gather(Stream stream, std::span<const BufferRange> ranges, std::byte* staging,
                          const Cast& cast) {
  return invoke("cannot enqueue a copy from the GPU",
                [&](const Driver&) { return kernels_->gather(handle_of(stream), ranges, staging, cast); });
}

Status CudaDevice::scatter(Stream stream, const std::byte* staging, std::span<const BufferRange> ranges,
                           const Cast& cast) {
  return invoke("cannot enqueue a copy to the GPU",
                [&](const Driver&) { return kernels_->scatter(handle_of(stream), staging, ranges, cast); });
}

Status CudaDevice::find_exponents(Stream stream, std::span<const BufferRange> ranges, uint8_t* exponents) {
  return invoke("cannot enqueue the search for exponents", [&](const Driver&) {
    return kernels_->find_exponents(handle_of(stream), ranges, exponents);
  });
}

Status CudaDevice::synchronize(Event& event) {
  return invoke("work on the GPU failed",
                [&](const Driver& d) { return d.event_synchronize(handle_of(event)); });
}

// A failed event counts as complete; synchronize() returns the error.
bool CudaDevice::is_complete(Event& event) {
  return context_->invoke([&](const Driver& d) { return d.event_query(handle_of(event)); }) !=
         CUDA_ERROR_NOT_READY;
}

void CudaDevice::write_value(uint32_t* word, uint32_t value) noexcept {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

Result<CastError> CudaDevice::cast_error() {
  CastError error;
  const Status s = invoke("cannot read the conversion errors", [&](const Driver& d) {
    const CUresult r = d.stream_synchronize(in_);
    return r == CUDA_SUCCESS ? kernels_->read_error(out_, error) : r;
  });
  if (!s.ok()) return fail(s.code(), last_error());
  return error;
}

}  // namespace

Result<std::unique_ptr<pipeline::Device>> open_cuda_device(int ordinal) {
  auto context = Context::retain(ordinal);
  if (!context) return tl::unexpected(std::move(context.error()));
  auto device = std::make_unique<CudaDevice>(std::move(*context));
  if (auto prepared = device->prepare(); !prepared) return tl::unexpected(std::move(prepared.error()));
  return device;
}

}  // namespace sluice::cuda
