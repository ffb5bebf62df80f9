#include "tests/conformance/device/device_test_bed.h"

#include <cuda.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "gpu_client/cuda/cuda_device.h"
#include "tests/support/cuda_stand_in/stand_in.h"

namespace sluice::pipeline::test {
namespace {

void expect(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(what);
}

// CudaTestBed makes the primary context current, like a training process.
class CudaTestBed final : public DeviceTestBed {
 public:
  explicit CudaTestBed(bool one_queue) : one_queue_(one_queue) {
    use_stand_in();
    cuda_stand_in::reset();
    cuda_stand_in::use_one_queue(one_queue);
    expect(cuInit(0), "cuInit");
    CUcontext context = nullptr;
    expect(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    expect(cuCtxPushCurrent(context), "cuCtxPushCurrent");
    auto opened = cuda::open_cuda_device(0);
    if (!opened) throw std::runtime_error(opened.error().text);
    device_ = std::move(*opened);
    own_ = make_stream();
  }
  ~CudaTestBed() override {
    device_.reset();
    for (const CUdeviceptr at : memory_) (void)cuMemFree(at);
    for (CUstream const stream : streams_) (void)cuStreamDestroy(stream);
    (void)cuCtxPopCurrent(nullptr);
    (void)cuDevicePrimaryCtxRelease(0);
    EXPECT_EQ(cuda_stand_in::live(), cuda_stand_in::Live{});
    cuda_stand_in::reset();
  }
  CudaTestBed(const CudaTestBed&) = delete;
  CudaTestBed& operator=(const CudaTestBed&) = delete;

  Device& device() override { return *device_; }

  Device::Stream make_stream() override {
    CUstream stream = nullptr;
    expect(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    streams_.push_back(stream);
    return stream;
  }

  void submit(Device::Stream stream, std::function<void()> work) override {
    auto kept = std::make_unique<std::function<void()>>(std::move(work));
    const auto run = [](void* argument) {
      const std::unique_ptr<std::function<void()>> given(static_cast<std::function<void()>*>(argument));
      (*given)();
    };
    expect(cuLaunchHostFunc(static_cast<CUstream>(stream), run, kept.get()), "cuLaunchHostFunc");
    (void)kept.release();
  }

  std::byte* allocate(size_t bytes) override {
    CUdeviceptr at = 0;
    expect(cuMemAlloc(&at, bytes), "cuMemAlloc");
    memory_.push_back(at);
    return reinterpret_cast<std::byte*>(at);
  }

  void write(std::byte* to, std::span<const std::byte> from) override {
    auto* const stream = static_cast<CUstream>(own_);
    expect(cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to), from.data(), from.size(), stream), "write");
    expect(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  void read(std::span<std::byte> to, const std::byte* from) override {
    auto* const stream = static_cast<CUstream>(own_);
    expect(cuMemcpyDtoHAsync(to.data(), reinterpret_cast<CUdeviceptr>(from), to.size(), stream), "read");
    expect(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  bool has_independent_streams() const override { return !one_queue_; }

 private:
  const bool one_queue_;
  std::unique_ptr<Device> device_;
  std::vector<CUstream> streams_;
  std::vector<CUdeviceptr> memory_;
  Device::Stream own_ = nullptr;
};

}  // namespace

void use_stand_in() {
  // tests/gpu/run.sh preloads the real driver, so that the calls of this test use it too.
  if (std::getenv("SLUICE_TEST_GPU") != nullptr) return;
  (void)::setenv("SLUICE_CUDA_DRIVER", SLUICE_CUDA_STAND_IN, 1);
}

std::unique_ptr<DeviceTestBed> make_cuda_test_bed(bool one_queue) {
  return std::make_unique<CudaTestBed>(one_queue);
}

}  // namespace sluice::pipeline::test
