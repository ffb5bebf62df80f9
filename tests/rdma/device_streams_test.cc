// Registered device memory in operations on streams: it is sent in place and never staged. The GPU is a fake
// driver on the CPU, the network card is soft-RoCE. Runs in the guest, with SLUICE_TRANSPORT=rdma.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "tests/functional/streams_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kElements = 300'000;

class DeviceStreams : public StreamsTestBed {
 protected:
  void SetUp() override {
    ::setenv("SLUICE_GDR", "1", 1);
    ::setenv("SLUICE_CUDA_DRIVER", SLUICE_CUDA_STAND_IN, 1);
    auto options = reducer_options();
    options.peer_timeout = 20 * kSecond;
    start_reducers(1, options);
  }
  void TearDown() override { ::unsetenv("SLUICE_GDR"); }
  static void adjust(sluice_options& o) {
    o.keep_results = 0;
    o.join_timeout_ms = 60'000;
  }
  static void fill(float* at, uint32_t rank) { std::iota(at, at + kElements, static_cast<float>(rank)); }
  static void expect_sum(const float* at) {
    for (size_t i = 0; i < kElements; ++i) ASSERT_EQ(at[i], static_cast<float>(2 * i + 1)) << i;
  }
};

TEST_F(DeviceStreams, RegisteredGpuMemoryIsNotStaged) {
  run_session(2, adjust, [&](uint32_t rank, sluice_session* s) {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, static_cast<CUdevice>(rank)), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
    CUdeviceptr at = 0;
    ASSERT_EQ(cuMemAlloc(&at, kElements * sizeof(float)), CUDA_SUCCESS);
    auto* const x = reinterpret_cast<float*>(at);
    sluice_stream_options options = small_options();
    options.device_kind = SLUICE_DEVICE_CUDA;
    ASSERT_EQ(sluice_session_open_streams(s, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
    std::array<char, 512> error{};
    ASSERT_EQ(
        sluice_memory_register_device(s, x, kElements * sizeof(float), -1, 0, error.data(), error.size()),
        SLUICE_OK)
        << error.data();
    fill(x, rank);
    ASSERT_EQ(sluice_allreduce_on_stream(s, x, x, kElements, SLUICE_F32, SLUICE_SUM, nullptr, nullptr),
              SLUICE_OK)
        << sluice_refusal();
    ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    expect_sum(x);
    EXPECT_EQ(stats_of(s).bytes_staged_out, 0u);
    ASSERT_EQ(sluice_memory_unregister(s, x, kElements * sizeof(float)), SLUICE_OK);
    fill(x, rank);
    ASSERT_EQ(sluice_allreduce_on_stream(s, x, x, kElements, SLUICE_F32, SLUICE_SUM, nullptr, nullptr),
              SLUICE_OK);
    ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    expect_sum(x);
    EXPECT_EQ(stats_of(s).bytes_staged_out, kElements * sizeof(float));
    EXPECT_EQ(cuMemFree(at), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(static_cast<CUdevice>(rank)), CUDA_SUCCESS);
  });
}

// A host stream cannot recognize GPU memory. A CPU access to these pages crashes the process.
TEST_F(DeviceStreams, HostStreamsDoNotAccessRegisteredDeviceMemory) {
  run_session(2, adjust, [&](uint32_t rank, sluice_session* s) {
    const size_t bytes = kElements * sizeof(float);
    void* const pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    auto* const x = static_cast<float*>(pages);
    sluice_stream_options options = small_options();
    options.always_staged = 1;
    ASSERT_EQ(sluice_session_open_streams(s, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
    ASSERT_EQ(sluice_memory_register_device(s, pages, bytes, -1, 0, nullptr, 0), SLUICE_OK);
    fill(x, rank);
    ASSERT_EQ(::mprotect(pages, bytes, PROT_NONE), 0);
    ScopedHostStream stream;
    // Adjacent operations of a group are not combined in a staging buffer either.
    ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
    for (const size_t first : {size_t{0}, kElements / 2}) {
      ASSERT_EQ(sluice_allreduce_on_stream(s, x + first, x + first, kElements / 2, SLUICE_F32, SLUICE_SUM,
                                           stream.get(), nullptr),
                SLUICE_OK);
    }
    ASSERT_EQ(sluice_group_end(s, nullptr), SLUICE_OK) << sluice_refusal();
    stream.synchronize();
    ASSERT_EQ(::mprotect(pages, bytes, PROT_READ | PROT_WRITE), 0);
    expect_sum(x);
    EXPECT_EQ(stats_of(s).bytes_staged_out, 0u);
    ASSERT_EQ(sluice_memory_unregister(s, pages, bytes), SLUICE_OK);
    ASSERT_EQ(::munmap(pages, bytes), 0);
  });
}

TEST_F(DeviceStreams, HostStreamsCannotConvertDeviceMemory) {
  run_session(2, adjust, [&](uint32_t, sluice_session* s) {
    std::vector<float> x(50'000);
    sluice_stream_options options = small_options();
    options.wire_dtype = SLUICE_BF16;
    ASSERT_EQ(sluice_session_open_streams(s, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
    ASSERT_EQ(sluice_memory_register_device(s, x.data(), x.size() * sizeof(float), -1, 0, nullptr, 0),
              SLUICE_OK);
    ScopedHostStream stream;
    EXPECT_EQ(sluice_allreduce_on_stream(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM,
                                         stream.get(), nullptr),
              SLUICE_UNSUPPORTED);
    EXPECT_THAT(sluice_refusal(), HasSubstr("cannot be converted to wire_dtype"));
    EXPECT_EQ(sluice_memory_unregister(s, x.data(), x.size() * sizeof(float)), SLUICE_OK);
  });
}

}  // namespace
}  // namespace sluice::test
