// Failures of the CUDA driver: they yield clear error texts, leak no resources, and leave the CUDA state of
// the caller unchanged.
#include <cuda.h>
#include <gmock/gmock.h>

#include <thread>

#include "gpu_client/cuda/cuda_device.h"
#include "tests/conformance/device/device_test_bed.h"
#include "tests/support/cuda_stand_in/stand_in.h"

namespace sluice::pipeline::test {
namespace {

using cuda_stand_in::fail_call;
using cuda_stand_in::live;
using cuda_stand_in::Live;
using testing::HasSubstr;

CUcontext current() {
  CUcontext context = nullptr;
  EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  return context;
}

// Makes a primary context current on this thread, like a caller.
class CurrentContext {
 public:
  explicit CurrentContext(int ordinal) : ordinal_(ordinal) {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, ordinal), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
  }
  ~CurrentContext() {
    EXPECT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(ordinal_), CUDA_SUCCESS);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  [[nodiscard]] CUcontext context() const { return context_; }

 private:
  const int ordinal_;
  CUcontext context_ = nullptr;
};

class CudaFailureFixture : public testing::Test {
 protected:
  void SetUp() override {
    use_stand_in();
    cuda_stand_in::reset();
  }
  void TearDown() override {
    EXPECT_EQ(current(), nullptr);
    EXPECT_EQ(live(), Live{});
    cuda_stand_in::reset();
  }

  static std::unique_ptr<Device> open(int ordinal = 0) {
    auto device = cuda::open_cuda_device(ordinal);
    EXPECT_TRUE(device.has_value()) << device.error().text;
    return std::move(*device);
  }
  static void expect_no_device(int ordinal, Errc code, const std::string& words) {
    const auto device = cuda::open_cuda_device(ordinal);
    ASSERT_FALSE(device.has_value());
    EXPECT_EQ(device.error().code, code) << device.error().text;
    EXPECT_THAT(device.error().text, HasSubstr(words));
    EXPECT_EQ(live(), Live{});
  }
};

TEST_F(CudaFailureFixture, NoGpu) {
  cuda_stand_in::set_gpus(0);
  expect_no_device(0, Errc::kUnsupported, "this machine has no GPU");
}

TEST_F(CudaFailureFixture, NoSuchGpu) {
  expect_no_device(2, Errc::kInvalidArgument, "no GPU 2: this machine has 2 GPUs");
  expect_no_device(-2, Errc::kInvalidArgument, "no GPU -2");
  expect_no_device(-1, Errc::kInvalidArgument, "this thread has none");
}

TEST_F(CudaFailureFixture, MinusOneIsTheGpuOfTheCurrentContext) {
  const CurrentContext other(1);
  const auto device = open(-1);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  EXPECT_TRUE(device->check_stream(stream).has_value());
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(CudaFailureFixture, AFailedOpenLeaksNothing) {
  const std::pair<const char*, int> calls[] = {{"cuDevicePrimaryCtxRetain", 1}, {"cuCtxPushCurrent", 1},
                                               {"cuStreamCreate", 2},           {"cuModuleLoadData", 1},
                                               {"cuModuleGetFunction", 5},      {"cuMemAlloc", 1},
                                               {"cuMemsetD8Async", 1},          {"cuMemHostAlloc", 1},
                                               {"cuLaunchKernel", 5},           {"cuStreamSynchronize", 1}};
  for (const auto& [function, most] : calls) {
    for (int nth = 1; nth <= most; ++nth) {
      SCOPED_TRACE(std::string(function) + " " + std::to_string(nth));
      fail_call(function, nth, CUDA_ERROR_OUT_OF_MEMORY);
      expect_no_device(0, Errc::kSystem, "CUDA_ERROR_OUT_OF_MEMORY: from the stand-in");
    }
  }
}

TEST_F(CudaFailureFixture, ADriverThatDoesNotStart) {
  fail_call("cuInit", 1, CUDA_ERROR_INVALID_VALUE);
  expect_no_device(0, Errc::kUnsupported, "cannot initialize the CUDA driver: CUDA_ERROR_INVALID_VALUE");
}

TEST_F(CudaFailureFixture, AGpuThatTheKernelsDoNotSupport) {
  fail_call("cuModuleLoadData", 1, CUDA_ERROR_NO_BINARY_FOR_GPU);
  expect_no_device(0, Errc::kUnsupported, "GPU 0: cannot load the kernels, compiled by CUDA 1");
}

TEST_F(CudaFailureFixture, MemoryThatCanNotBePinned) {
  const auto device = open();
  fail_call("cuMemHostAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  const auto first = device->allocate_pinned(4096);
  EXPECT_TRUE(first.has_value());
  const auto second = device->allocate_pinned(123456);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Errc::kSystem);
  EXPECT_THAT(second.error().text, HasSubstr("GPU 0: cannot pin 123456 bytes: CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(CudaFailureFixture, FailedCallsReportTheirError) {
  const CurrentContext caller(0);
  const auto device = open();
  const auto event = std::move(*device->make_event());
  const auto pinned = std::move(*device->allocate_pinned(65536));
  auto* const word = reinterpret_cast<uint32_t*>(pinned->bytes().data());
  // Nothing orders the two streams: each has memory and staging of its own.
  auto* const out_staging = pinned->bytes().data() + 4096;
  auto* const in_staging = pinned->bytes().data() + 8192;
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 65536), CUDA_SUCCESS);
  auto* const at = reinterpret_cast<std::byte*>(memory);
  const BufferRange one{.send = at, .recv = at + 4096, .count = 16};
  const Cast bf16{.wire = WireCast::kBf16};
  const auto expect_refused = [&](const char* function, auto&& call) {
    fail_call(function, 1, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(call().code(), Errc::kSystem) << function;
    EXPECT_THAT(device->last_error(), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")) << function;
    EXPECT_TRUE(call().ok()) << function;
  };
  Device& d = *device;
  expect_refused("cuEventRecord", [&] { return d.record(*event, d.copy_out_stream()); });
  expect_refused("cuStreamWaitEvent", [&] { return d.wait(d.copy_in_stream(), *event); });
  expect_refused("cuStreamWaitValue32", [&] { return d.wait_value(d.copy_in_stream(), word, 0); });
  expect_refused("cuMemcpyDtoHAsync", [&] {
    return d.gather(d.copy_out_stream(), {&one, 1}, out_staging, {});
  });
  expect_refused("cuMemcpyHtoDAsync", [&] {
    return d.scatter(d.copy_in_stream(), in_staging, {&one, 1}, {});
  });
  expect_refused("cuLaunchKernel", [&] {
    return d.gather(d.copy_out_stream(), {&one, 1}, out_staging, bf16);
  });
  expect_refused("cuLaunchKernel", [&] {
    return d.scatter(d.copy_in_stream(), in_staging, {&one, 1}, bf16);
  });
  expect_refused("cuLaunchKernel", [&] {
    return d.find_exponents(d.copy_out_stream(), {&one, 1}, reinterpret_cast<uint8_t*>(out_staging));
  });
  expect_refused("cuEventSynchronize", [&] { return d.synchronize(*event); });
  expect_refused("cuCtxPushCurrent", [&] { return d.record(*event, d.copy_in_stream()); });
  fail_call("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(device->make_event().has_value());
  fail_call("cuMemcpyDtoHAsync", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_FALSE(device->cast_error().has_value());
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

// As after an invalid memory access of any kernel.
TEST_F(CudaFailureFixture, AFailedGpuReleasesWaiters) {
  const CurrentContext caller(0);
  auto device = open();
  const auto event = std::move(*device->make_event());
  const auto pinned = std::move(*device->allocate_pinned(4096));
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 4096), CUDA_SUCCESS);
  const BufferRange one{.send = reinterpret_cast<std::byte*>(memory), .count = 16};
  auto* const word = reinterpret_cast<uint32_t*>(pinned->bytes().data());
  ASSERT_TRUE(device->wait_value(device->copy_in_stream(), word, 1).ok());
  ASSERT_TRUE(device->record(*event, device->copy_in_stream()).ok());
  EXPECT_FALSE(device->is_complete(*event));
  cuda_stand_in::fail_kernel(CUDA_ERROR_ILLEGAL_ADDRESS);
  ASSERT_TRUE(
      device->gather(device->copy_out_stream(), {&one, 1}, pinned->bytes().data(), {.wire = WireCast::kBf16})
          .ok());
  EXPECT_EQ(device->synchronize(*event).code(), Errc::kSystem);
  EXPECT_TRUE(device->is_complete(*event));
  EXPECT_THAT(device->last_error(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(device->record(*event, device->copy_out_stream()).code(), Errc::kSystem);
  device.reset();
  (void)cuMemFree(memory);
}

TEST_F(CudaFailureFixture, RefusesStreamsOfOtherGpus) {
  const auto device = open(0);
  {
    const CurrentContext other(1);
    CUstream theirs = nullptr;
    ASSERT_EQ(cuStreamCreate(&theirs, 0), CUDA_SUCCESS);
    const auto refused = device->check_stream(theirs);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(refused.error().text, HasSubstr("belongs to another GPU"));
    EXPECT_EQ(cuStreamDestroy(theirs), CUDA_SUCCESS);
  }
  int no_stream = 0;
  const auto refused = device->check_stream(&no_stream);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
  for (CUstream const special : {static_cast<CUstream>(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD})
    EXPECT_TRUE(device->check_stream(special).has_value());
}

TEST_F(CudaFailureFixture, RefusesCapturedStreams) {
  const CurrentContext caller(0);
  const auto device = open();
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  EXPECT_TRUE(device->check_stream(stream).has_value());
  cuda_stand_in::capture(stream, true);
  for (CUstream const captured : {stream, static_cast<CUstream>(nullptr)}) {
    const auto refused = device->check_stream(captured);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::kUnsupported);
    EXPECT_THAT(refused.error().text, HasSubstr("captured"));
  }
  cuda_stand_in::capture(stream, false);
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

// Certain calls of any thread of the process break a stream capture in global mode.
TEST_F(CudaFailureFixture, DoesNotBreakAStreamCapture) {
  const CurrentContext caller(0);
  const auto device = open();
  const auto event = std::move(*device->make_event());
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  cuda_stand_in::capture(stream, true);
  EXPECT_TRUE(device->record(*event, device->copy_out_stream()).ok());
  EXPECT_TRUE(device->synchronize(*event).ok()) << device->last_error();
  EXPECT_TRUE(device->is_complete(*event));
  EXPECT_TRUE(device->allocate_pinned(4096).has_value()) << device->last_error();
  EXPECT_TRUE(device->cast_error().has_value()) << device->last_error();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the capture mode of this thread was changed";
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  cuda_stand_in::capture(stream, false);
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(CudaFailureFixture, TheCallersContextStaysCurrent) {
  const CurrentContext other(1);
  const auto device = open(0);
  EXPECT_EQ(current(), other.context());
  const auto event = std::move(*device->make_event());
  EXPECT_TRUE(device->record(*event, device->copy_out_stream()).ok());
  EXPECT_TRUE(device->record(*event, nullptr).ok())
      << "the default stream of GPU 0: " << device->last_error();
  EXPECT_TRUE(device->synchronize(*event).ok());
  fail_call("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(device->allocate_pinned(4096).has_value());
  EXPECT_EQ(current(), other.context());
}

TEST_F(CudaFailureFixture, AnyThreadMayAwait) {
  const auto device = open();
  const auto pinned = std::move(*device->allocate_pinned(4096));
  auto* const word = reinterpret_cast<uint32_t*>(pinned->bytes().data());
  std::vector<std::unique_ptr<Event>> events;
  for (uint32_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(device->wait_value(device->copy_in_stream(), word, i).ok());
    events.push_back(std::move(*device->make_event()));
    ASSERT_TRUE(device->record(*events.back(), device->copy_in_stream()).ok());
  }
  std::vector<std::thread> threads;
  for (auto& event : events) {
    threads.emplace_back([&device, &event] {
      EXPECT_TRUE(device->synchronize(*event).ok());
      EXPECT_TRUE(device->is_complete(*event));
      EXPECT_EQ(current(), nullptr);
    });
  }
  for (uint32_t i = 1; i <= 8; ++i) device->write_value(word, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaFailureFixture, MemoryAndEventsMayOutliveTheDevice) {
  auto device = open();
  auto event = std::move(*device->make_event());
  auto pinned = std::move(*device->allocate_pinned(4096));
  device.reset();
  EXPECT_EQ(live(), (Live{.contexts = 1, .events = 1, .pinned_bytes = 4096}));
}

class CudaMemoryFixture : public CudaFailureFixture {
 protected:
  static void expect_refused(const Result<Device::MemoryLocation>& found, const std::string& words) {
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(found.error().text, HasSubstr(words));
  }
};

TEST_F(CudaMemoryFixture, OfTheGpu) {
  const CurrentContext caller(0);
  const auto device = open();
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 10000), CUDA_SUCCESS);
  const auto* const at = reinterpret_cast<const std::byte*>(memory);
  EXPECT_EQ(device->locate(at, 10000), Device::MemoryLocation::kDevice);
  EXPECT_EQ(device->locate(at + 9999, 1), Device::MemoryLocation::kDevice);
  expect_refused(device->locate(at, 10001), "10001 bytes at 0x");
  expect_refused(device->locate(at + 100, 9901), "exceed their allocation, which has 9900 bytes from there");
  expect_refused(device->locate(at + 100, ~uint64_t{0}), "exceed their allocation");
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(CudaMemoryFixture, OfAnotherGpu) {
  const auto device = open(0);
  const CurrentContext other(1);
  CUdeviceptr theirs = 0, managed = 0;
  ASSERT_EQ(cuMemAlloc(&theirs, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  expect_refused(device->locate(reinterpret_cast<const void*>(theirs), 4096),
                 "belongs to GPU 1, the streams belong to GPU 0");
  EXPECT_EQ(device->locate(reinterpret_cast<const void*>(managed), 4096), Device::MemoryLocation::kDevice);
  EXPECT_EQ(cuMemFree(theirs), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(managed), CUDA_SUCCESS);
}

TEST_F(CudaMemoryFixture, OfTheHost) {
  const CurrentContext caller(0);
  const auto device = open();
  std::vector<std::byte> pageable(4096);
  EXPECT_EQ(device->locate(pageable.data(), 4096), Device::MemoryLocation::kHost);
  // Drivers before CUDA 11 report an error here.
  fail_call("cuPointerGetAttributes", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->locate(pageable.data(), 4096), Device::MemoryLocation::kHost);
  ASSERT_EQ(cuMemHostRegister(pageable.data(), 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->locate(pageable.data(), 4096), Device::MemoryLocation::kHost);
  ASSERT_EQ(cuMemHostUnregister(pageable.data()), CUDA_SUCCESS);
  const auto pinned = std::move(*device->allocate_pinned(4096));
  EXPECT_EQ(device->locate(pinned->bytes().data(), 4096), Device::MemoryLocation::kHost);
  fail_call("cuPointerGetAttributes", 1, CUDA_ERROR_LAUNCH_FAILED);
  const auto failed = device->locate(pageable.data(), 4096);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kSystem);
}

}  // namespace
}  // namespace sluice::pipeline::test
