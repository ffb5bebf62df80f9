// What a GPU's driver refuses, and what becomes of it: plain words, nothing left behind, and the caller's own
// CUDA state as it was.
#include <cuda.h>
#include <gmock/gmock.h>

#include <thread>

#include "gpu_client/cuda/cuda_device.h"
#include "tests/conformance/device/cuda_bed.h"
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

// A primary context of the caller's own, current on this thread.
class Entered {
 public:
  explicit Entered(int ordinal) : ordinal_(ordinal) {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, ordinal), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
  }
  ~Entered() {
    EXPECT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(ordinal_), CUDA_SUCCESS);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  [[nodiscard]] CUcontext context() const { return context_; }

 private:
  const int ordinal_;
  CUcontext context_ = nullptr;
};

class CudaFailure : public testing::Test {
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

TEST_F(CudaFailure, NoGpu) {
  cuda_stand_in::set_gpus(0);
  expect_no_device(0, Errc::kUnsupported, "no GPU on this machine");
}

TEST_F(CudaFailure, NoSuchGpu) {
  expect_no_device(2, Errc::kInvalidArgument, "no GPU 2: there are 2");
  expect_no_device(-2, Errc::kInvalidArgument, "no GPU -2");
  expect_no_device(-1, Errc::kInvalidArgument, "this thread has none");
}

TEST_F(CudaFailure, MinusOneIsTheGpuOfTheCurrentContext) {
  const Entered other(1);
  const auto device = open(-1);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  EXPECT_TRUE(device->check_stream(stream).has_value());
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(CudaFailure, NothingIsLeftOfADeviceThatCouldNotBeOpened) {
  const std::pair<const char*, int> calls[] = {{"cuDevicePrimaryCtxRetain", 1}, {"cuCtxPushCurrent", 1},
                                               {"cuStreamCreate", 2},           {"cuModuleLoadData", 1},
                                               {"cuModuleGetFunction", 5},      {"cuMemAlloc", 1},
                                               {"cuMemsetD8Async", 1},          {"cuMemHostAlloc", 1},
                                               {"cuLaunchKernel", 5},           {"cuStreamSynchronize", 1}};
  for (const auto& [function, most] : calls) {
    for (int nth = 1; nth <= most; ++nth) {
      SCOPED_TRACE(std::string(function) + " " + std::to_string(nth));
      fail_call(function, nth, CUDA_ERROR_OUT_OF_MEMORY);
      expect_no_device(0, Errc::kSystem, "CUDA_ERROR_OUT_OF_MEMORY: as the stand-in says");
    }
  }
}

TEST_F(CudaFailure, ADriverThatDoesNotStart) {
  fail_call("cuInit", 1, CUDA_ERROR_INVALID_VALUE);
  expect_no_device(0, Errc::kUnsupported, "the CUDA driver does not start: CUDA_ERROR_INVALID_VALUE");
}

TEST_F(CudaFailure, AGpuThatTheKernelsAreNotFor) {
  fail_call("cuModuleLoadData", 1, CUDA_ERROR_NO_BINARY_FOR_GPU);
  expect_no_device(0, Errc::kUnsupported, "GPU 0 does not take the kernels, of CUDA 1");
}

TEST_F(CudaFailure, MemoryThatCanNotBePinned) {
  const auto device = open();
  fail_call("cuMemHostAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  const auto first = device->pin(4096);
  EXPECT_TRUE(first.has_value());
  const auto second = device->pin(123456);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Errc::kSystem);
  EXPECT_THAT(second.error().text, HasSubstr("GPU 0: cannot pin 123456 bytes: CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(CudaFailure, CallsThatAreRefusedSayWhy) {
  const Entered caller(0);
  const auto device = open();
  const auto event = std::move(*device->make_event());
  const auto pinned = std::move(*device->pin(65536));
  auto* const word = reinterpret_cast<uint32_t*>(pinned->bytes().data());
  auto* const staging = pinned->bytes().data() + 4096;
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 65536), CUDA_SUCCESS);
  auto* const at = reinterpret_cast<std::byte*>(memory);
  const Segment one{.send = at, .recv = at, .count = 16};
  const Cast bf16{.wire = WireCast::kBf16};
  const auto expect_refused = [&](const char* function, auto&& call) {
    fail_call(function, 1, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(call().code(), Errc::kSystem) << function;
    EXPECT_THAT(device->last_words(), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")) << function;
    EXPECT_TRUE(call().ok()) << function;
  };
  Device& d = *device;
  expect_refused("cuEventRecord", [&] { return d.record(*event, d.out()); });
  expect_refused("cuStreamWaitEvent", [&] { return d.wait(d.in(), *event); });
  expect_refused("cuStreamWaitValue32", [&] { return d.hold(d.in(), word, 0); });
  expect_refused("cuMemcpyDtoHAsync", [&] { return d.gather(d.out(), {&one, 1}, staging, {}); });
  expect_refused("cuMemcpyHtoDAsync", [&] { return d.scatter(d.in(), staging, {&one, 1}, {}); });
  expect_refused("cuLaunchKernel", [&] { return d.gather(d.out(), {&one, 1}, staging, bf16); });
  expect_refused("cuLaunchKernel", [&] { return d.scatter(d.in(), staging, {&one, 1}, bf16); });
  expect_refused("cuLaunchKernel", [&] {
    return d.find_exponents(d.out(), {&one, 1}, reinterpret_cast<uint8_t*>(staging));
  });
  expect_refused("cuEventSynchronize", [&] { return d.await(*event); });
  expect_refused("cuCtxPushCurrent", [&] { return d.record(*event, d.in()); });
  fail_call("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(device->make_event().has_value());
  fail_call("cuMemcpyDtoHAsync", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_FALSE(device->cast_error().has_value());
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

// As when a kernel, ours or not, has written to a wrong address.
TEST_F(CudaFailure, AGpuThatFailsLetsGoOfWhatWaits) {
  const Entered caller(0);
  auto device = open();
  const auto event = std::move(*device->make_event());
  const auto pinned = std::move(*device->pin(4096));
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 4096), CUDA_SUCCESS);
  const Segment one{.send = reinterpret_cast<std::byte*>(memory), .count = 16};
  auto* const word = reinterpret_cast<uint32_t*>(pinned->bytes().data());
  ASSERT_TRUE(device->hold(device->in(), word, 1).ok());
  ASSERT_TRUE(device->record(*event, device->in()).ok());
  EXPECT_FALSE(device->is_over(*event));
  cuda_stand_in::fail_kernel(CUDA_ERROR_ILLEGAL_ADDRESS);
  ASSERT_TRUE(
      device->gather(device->out(), {&one, 1}, pinned->bytes().data(), {.wire = WireCast::kBf16}).ok());
  EXPECT_EQ(device->await(*event).code(), Errc::kSystem);
  EXPECT_TRUE(device->is_over(*event));
  EXPECT_THAT(device->last_words(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(device->record(*event, device->out()).code(), Errc::kSystem);
  device.reset();
  (void)cuMemFree(memory);
}

TEST_F(CudaFailure, StreamsThatAreNoneOfThisGpu) {
  const auto device = open(0);
  {
    const Entered other(1);
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

TEST_F(CudaFailure, StreamsThatAreCaptured) {
  const Entered caller(0);
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

// A capture in the global mode breaks when any thread of the process asks certain things.
TEST_F(CudaFailure, ACaptureGoesOnBesideADevice) {
  const Entered caller(0);
  const auto device = open();
  const auto event = std::move(*device->make_event());
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  cuda_stand_in::capture(stream, true);
  EXPECT_TRUE(device->record(*event, device->out()).ok());
  EXPECT_TRUE(device->await(*event).ok()) << device->last_words();
  EXPECT_TRUE(device->is_over(*event));
  EXPECT_TRUE(device->pin(4096).has_value()) << device->last_words();
  EXPECT_TRUE(device->cast_error().has_value()) << device->last_words();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "this thread's own mode was changed";
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  cuda_stand_in::capture(stream, false);
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(CudaFailure, TheCallersContextStaysCurrent) {
  const Entered other(1);
  const auto device = open(0);
  EXPECT_EQ(current(), other.context());
  const auto event = std::move(*device->make_event());
  EXPECT_TRUE(device->record(*event, device->out()).ok());
  EXPECT_TRUE(device->record(*event, nullptr).ok()) << "of GPU 0's default stream: " << device->last_words();
  EXPECT_TRUE(device->await(*event).ok());
  fail_call("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(device->pin(4096).has_value());
  EXPECT_EQ(current(), other.context());
}

TEST_F(CudaFailure, AnyThreadMayAwait) {
  const auto device = open();
  const auto pinned = std::move(*device->pin(4096));
  auto* const word = reinterpret_cast<uint32_t*>(pinned->bytes().data());
  std::vector<std::unique_ptr<Event>> events;
  for (uint32_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(device->hold(device->in(), word, i).ok());
    events.push_back(std::move(*device->make_event()));
    ASSERT_TRUE(device->record(*events.back(), device->in()).ok());
  }
  std::vector<std::thread> threads;
  for (auto& event : events) {
    threads.emplace_back([&device, &event] {
      EXPECT_TRUE(device->await(*event).ok());
      EXPECT_TRUE(device->is_over(*event));
      EXPECT_EQ(current(), nullptr);
    });
  }
  for (uint32_t i = 1; i <= 8; ++i) device->open(word, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaFailure, MemoryAndEventsMayOutliveTheDevice) {
  auto device = open();
  auto event = std::move(*device->make_event());
  auto pinned = std::move(*device->pin(4096));
  device.reset();
  EXPECT_EQ(live(), (Live{.contexts = 1, .events = 1, .pinned_bytes = 4096}));
}

class CudaMemory : public CudaFailure {
 protected:
  static void expect_refused(const Result<Device::Where>& found, const std::string& words) {
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(found.error().text, HasSubstr(words));
  }
};

TEST_F(CudaMemory, OfTheGpu) {
  const Entered caller(0);
  const auto device = open();
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, 10000), CUDA_SUCCESS);
  const auto* const at = reinterpret_cast<const std::byte*>(memory);
  EXPECT_EQ(device->look_at(at, 10000), Device::Where::kDevice);
  EXPECT_EQ(device->look_at(at + 9999, 1), Device::Where::kDevice);
  expect_refused(device->look_at(at, 10001), "10001 bytes at 0x");
  expect_refused(device->look_at(at + 100, 9901), "reach beyond their allocation, which has 9900 from there");
  expect_refused(device->look_at(at + 100, ~uint64_t{0}), "reach beyond");
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(CudaMemory, OfAnotherGpu) {
  const auto device = open(0);
  const Entered other(1);
  CUdeviceptr theirs = 0, managed = 0;
  ASSERT_EQ(cuMemAlloc(&theirs, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  expect_refused(device->look_at(reinterpret_cast<const void*>(theirs), 4096),
                 "is of GPU 1, the streams are of GPU 0");
  EXPECT_EQ(device->look_at(reinterpret_cast<const void*>(managed), 4096), Device::Where::kDevice);
  EXPECT_EQ(cuMemFree(theirs), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(managed), CUDA_SUCCESS);
}

TEST_F(CudaMemory, OfTheHost) {
  const Entered caller(0);
  const auto device = open();
  std::vector<std::byte> pageable(4096);
  EXPECT_EQ(device->look_at(pageable.data(), 4096), Device::Where::kHost);
  // Drivers of before 11 call it an error.
  fail_call("cuPointerGetAttributes", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->look_at(pageable.data(), 4096), Device::Where::kHost);
  ASSERT_EQ(cuMemHostRegister(pageable.data(), 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->look_at(pageable.data(), 4096), Device::Where::kHost);
  ASSERT_EQ(cuMemHostUnregister(pageable.data()), CUDA_SUCCESS);
  const auto pinned = std::move(*device->pin(4096));
  EXPECT_EQ(device->look_at(pinned->bytes().data(), 4096), Device::Where::kHost);
  fail_call("cuPointerGetAttributes", 1, CUDA_ERROR_LAUNCH_FAILED);
  const auto failed = device->look_at(pageable.data(), 4096);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kSystem);
}

}  // namespace
}  // namespace sluice::pipeline::test
