#include "gpu_client/cuda/cuda_device.h"

#include <atomic>
#include <utility>

#include "gpu_client/cuda/context.h"
#include "gpu_client/cuda/kernel_set.h"
#include "gpu_client/cuda/memory.h"

namespace sluice::cuda {
namespace {

using pipeline::Cast;
using pipeline::CastError;
using pipeline::Event;
using pipeline::Pinned;
using pipeline::Segment;

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

  Result<std::unique_ptr<Pinned>> pin(size_t bytes) override { return cuda::pin(context_, bytes); }
  Result<std::unique_ptr<Event>> make_event() override { return CudaEvent::make(context_); }
  void finish() noexcept override;
  Stream out() noexcept override { return out_; }
  Stream in() noexcept override { return in_; }
  Result<void> check_stream(Stream stream) override;
  Result<Where> look_at(const void* at, uint64_t bytes) override {
    return cuda::look_at(*context_, at, bytes);
  }
  Status record(Event& event, Stream stream) override;
  Status wait(Stream stream, Event& event) override;
  Status hold(Stream stream, uint32_t* word, uint32_t value) override;
  Status gather(Stream stream, std::span<const Segment> segments, std::byte* staging,
                const Cast& cast) override;
  Status scatter(Stream stream, const std::byte* staging, std::span<const Segment> segments,
                 const Cast& cast) override;
  Status find_exponents(Stream stream, std::span<const Segment> segments, uint8_t* exponents) override;
  Status await(Event& event) override;
  bool is_over(Event& event) override;
  void open(uint32_t* word, uint32_t value) noexcept override;
  Result<CastError> cast_error() override;
  std::string last_words() const override { return context_->last_words(); }

 private:
  // What call(driver) says within the context, with the words kept when it is an error.
  template <typename Call>
  Status ask(const char* what, Call&& call) {
    return context_->check(context_->within(std::forward<Call>(call)), what);
  }

  const std::shared_ptr<Context> context_;
  std::unique_ptr<KernelSet> kernels_;
  CUstream out_ = nullptr;
  CUstream in_ = nullptr;
  unsigned int hold_flags_ = CU_STREAM_WAIT_VALUE_GEQ;
};

Result<void> CudaDevice::prepare() {
  for (CUstream* const stream : {&out_, &in_}) {
    const Status s =
        ask("no stream", [&](const Driver& d) { return d.stream_create(stream, CU_STREAM_NON_BLOCKING); });
    if (!s.ok()) return fail(s.code(), last_words());
  }
  // Results that a network card has written are then seen by what the stream does next.
  if (context_->attribute(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES) != 0)
    hold_flags_ |= CU_STREAM_WAIT_VALUE_FLUSH;
  auto kernels = KernelSet::load(context_, out_);
  if (!kernels) return tl::unexpected(std::move(kernels.error()));
  kernels_ = std::move(*kernels);
  return {};
}

void CudaDevice::finish() noexcept {
  for (CUstream const stream : {out_, in_}) {
    if (stream == nullptr) continue;
    (void)context_->within([stream](const Driver& d) { return d.stream_synchronize(stream); });
  }
}

CudaDevice::~CudaDevice() {
  finish();
  kernels_.reset();
  for (CUstream const stream : {out_, in_}) {
    if (stream == nullptr) continue;
    (void)context_->within([stream](const Driver& d) { return d.stream_destroy(stream); });
  }
}

Result<void> CudaDevice::check_stream(Stream stream) {
  CUcontext owner = nullptr;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult known = CUDA_SUCCESS;
  CUresult capturing = CUDA_SUCCESS;
  const CUresult entered = context_->within([&](const Driver& d) {
    known = d.stream_get_ctx(handle_of(stream), &owner);
    if (known == CUDA_SUCCESS && owner == context_->handle())
      capturing = d.stream_is_capturing(handle_of(stream), &capture);
    return CUDA_SUCCESS;
  });
  if (const Status s = context_->check(entered, "a stream can't be looked at"); !s.ok())
    return fail(s.code(), last_words());
  if (known == CUDA_ERROR_INVALID_HANDLE || known == CUDA_ERROR_INVALID_VALUE ||
      known == CUDA_ERROR_INVALID_CONTEXT || known == CUDA_ERROR_CONTEXT_IS_DESTROYED)
    return fail(Errc::kInvalidArgument, "the stream is none of CUDA: " + describe(context_->driver(), known));
  if (known == CUDA_SUCCESS && owner != context_->handle())
    return fail(Errc::kInvalidArgument, "the stream belongs to another GPU than " +
                                            std::to_string(context_->ordinal()) +
                                            ", or to another context there than the primary one");
  const bool implicit = capturing == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (implicit || (capturing == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE))
    return fail(Errc::kUnsupported, "the stream is being captured into a graph");
  if (const Status s = context_->check(known != CUDA_SUCCESS ? known : capturing, "a stream can't be used");
      !s.ok())
    return fail(s.code(), last_words());
  return {};
}

Status CudaDevice::record(Event& event, Stream stream) {
  return ask("an event can't be recorded",
             [&](const Driver& d) { return d.event_record(handle_of(event), handle_of(stream)); });
}

Status CudaDevice::wait(Stream stream, Event& event) {
  return ask("a stream can't wait for an event",
             [&](const Driver& d) { return d.stream_wait_event(handle_of(stream), handle_of(event), 0); });
}

Status CudaDevice::hold(Stream stream, uint32_t* word, uint32_t value) {
  return ask("a stream can't be held", [&](const Driver& d) {
    return d.stream_wait_value32(handle_of(stream), reinterpret_cast<CUdeviceptr>(word), value, hold_flags_);
  });
}

Status CudaDevice::gather(Stream stream, std::span<const Segment> segments, std::byte* staging,
                          const Cast& cast) {
  return ask("a copy from the GPU was refused",
             [&](const Driver&) { return kernels_->gather(handle_of(stream), segments, staging, cast); });
}

Status CudaDevice::scatter(Stream stream, const std::byte* staging, std::span<const Segment> segments,
                           const Cast& cast) {
  return ask("a copy to the GPU was refused",
             [&](const Driver&) { return kernels_->scatter(handle_of(stream), staging, segments, cast); });
}

Status CudaDevice::find_exponents(Stream stream, std::span<const Segment> segments, uint8_t* exponents) {
  return ask("the search for exponents was refused",
             [&](const Driver&) { return kernels_->find_exponents(handle_of(stream), segments, exponents); });
}

Status CudaDevice::await(Event& event) {
  return ask("work has failed", [&](const Driver& d) { return d.event_synchronize(handle_of(event)); });
}

// One that has failed is over, and await() says so.
bool CudaDevice::is_over(Event& event) {
  return context_->within([&](const Driver& d) { return d.event_query(handle_of(event)); }) !=
         CUDA_ERROR_NOT_READY;
}

void CudaDevice::open(uint32_t* word, uint32_t value) noexcept {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

Result<CastError> CudaDevice::cast_error() {
  CastError error;
  const Status s = ask("the errors of casts can't be read", [&](const Driver& d) {
    const CUresult r = d.stream_synchronize(in_);
    return r == CUDA_SUCCESS ? kernels_->read_error(out_, error) : r;
  });
  if (!s.ok()) return fail(s.code(), last_words());
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
