// The C API on GPU memory and streams, with the CUDA driver stand-in: results and failures.
#include <cuda.h>

#include <cstdlib>
#include <cstring>
#include <latch>
#include <numeric>
#include <vector>

#include "core/instrumented.h"
#include "tests/functional/scoped_gpu.h"
#include "tests/functional/streams_test_bed.h"
#include "tests/support/cuda_stand_in/stand_in.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

class CudaStreams : public StreamsTestBed {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(setenv("SLUICE_CUDA_DRIVER", SLUICE_CUDA_STAND_IN, 1), 0);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  void SetUp() override { cuda_stand_in::reset(); }
  void TearDown() override { EXPECT_EQ(cuda_stand_in::live(), cuda_stand_in::Live{}); }

  static sluice_stream_options gpu_options(int device = 0) {
    sluice_stream_options o = small_options();
    o.device_kind = SLUICE_DEVICE_CUDA;
    o.device = device;
    return o;
  }
};

// Issues operations of all types and operators and in groups, in the same order on a GPU and on the host.
class OperationSequence {
 public:
  OperationSequence(sluice_session* session, uint32_t rank) : session_(session), rank_(rank) {}

  // upload(bytes) returns memory with a copy of the bytes, and download(memory, bytes) reads it back; both in
  // the order of the stream.
  template <typename Upload, typename Download>
  std::vector<std::vector<std::byte>> run(sluice_stream stream, Upload&& upload, Download&& download) {
    std::vector<std::vector<std::byte>> results;
    results.reserve(200);
    inputs_.reserve(200);
    const auto reduce = [&](size_t count, sluice_dtype dtype, sluice_op op) {
      std::vector<std::byte>& in = inputs_.emplace_back(count * 8);
      for (size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<std::byte>((i * 2654435761u + rank_ * 97 + inputs_.size() * 31) >> 13);
      void* const at = upload(in);
      EXPECT_EQ(sluice_allreduce_on_stream(session_, at, at, count, dtype, op, stream, nullptr), SLUICE_OK)
          << sluice_refusal();
      pending_.emplace_back(at, &results.emplace_back(in.size()));
    };
    const auto download_all = [&] {
      for (const auto& [at, to] : pending_) download(at, *to);
      pending_.clear();
    };
    for (int dtype = SLUICE_I8; dtype <= SLUICE_F8E5M2; ++dtype) {
      for (int op = SLUICE_SUM; op <= SLUICE_AVG; ++op)
        reduce(20'001, static_cast<sluice_dtype>(dtype), static_cast<sluice_op>(op));
    }
    download_all();
    EXPECT_EQ(sluice_group_begin(session_), SLUICE_OK);
    for (size_t i = 1; i < 40; ++i) reduce(i * 251, SLUICE_F32, i % 13 == 0 ? SLUICE_AVG : SLUICE_SUM);
    EXPECT_EQ(sluice_group_end(session_, nullptr), SLUICE_OK) << sluice_refusal();
    download_all();
    return results;
  }

 private:
  sluice_session* const session_;
  const uint32_t rank_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::pair<void*, std::vector<std::byte>*>> pending_;
};

TEST_F(CudaStreams, ResultsHaveTheBitsOfTheHostForEveryTypeOperatorAndWireType) {
  start_reducers(2);
  constexpr uint32_t kRanks = 2;
  for (const bool one_queue : {false, true}) {
    cuda_stand_in::use_one_queue(one_queue);
    for (const int wire : {SLUICE_WIRE_AS_GIVEN, int{SLUICE_BF16}, int{SLUICE_F16}}) {
      std::array<std::vector<std::vector<std::byte>>, kRanks> expected;
      sluice_stream_options options = small_options(1);
      options.wire_dtype = wire;
      run_streams(kRanks, options, [&](uint32_t rank, sluice_session* s) {
        ScopedHostStream stream;
        std::vector<std::unique_ptr<std::vector<std::byte>>> memory;
        expected[rank] = OperationSequence(s, rank).run(
            stream.get(),
            [&](const std::vector<std::byte>& in) {
              return memory.emplace_back(std::make_unique<std::vector<std::byte>>(in))->data();
            },
            [&](void* at, std::vector<std::byte>& out) {
              stream.synchronize();
              std::memcpy(out.data(), at, out.size());
            });
      });
      run_session(kRanks, nullptr, [&](uint32_t rank, sluice_session* s) {
        ScopedGpu gpu(static_cast<int>(rank));
        sluice_stream_options on_gpu = gpu_options(static_cast<int>(rank));
        on_gpu.wire_dtype = wire;
        ASSERT_EQ(sluice_session_open_streams(s, &on_gpu, nullptr, 0), SLUICE_OK) << sluice_refusal();
        // Synchronizes only at the end; the stream keeps the order.
        OperationSequence sequence(s, rank);
        const auto results = sequence.run(
            gpu.stream(), [&](const std::vector<std::byte>& in) { return gpu.upload(in); },
            [&](void* at, std::vector<std::byte>& out) { gpu.download(out, static_cast<std::byte*>(at)); });
        gpu.synchronize();
        EXPECT_EQ(results, expected[rank]) << "wire " << wire << " one queue " << one_queue;
      });
      ++session_;
    }
  }
}

// All work of a large operation is enqueued at its call, and a single hardware queue can run it.
TEST_F(CudaStreams, AnOperationDoesNotBlockTheCaller) {
  start_reducers(1);
  for (const bool one_queue : {false, true}) {
    cuda_stand_in::use_one_queue(one_queue);
    std::latch enqueued(2);
    run_session(2, nullptr, [&](uint32_t rank, sluice_session* s) {
      ScopedGpu gpu(static_cast<int>(rank));
      const sluice_stream_options options = gpu_options(-1);  // of the current context
      ASSERT_EQ(sluice_session_open_streams(s, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
      const std::vector<float> in = ramp(rank, 500'000);
      std::vector<float> out(in.size());
      float* const at = gpu.upload(in);
      std::latch start(1);
      gpu.wait_for(start);
      sluice_request request = 0;
      for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(enqueue(s, at, in.size(), gpu.stream(), &request, SLUICE_AVG), SLUICE_OK);
        gpu.download(out, at);
      }
      enqueued.arrive_and_wait();
      int done = 1;
      EXPECT_EQ(sluice_test(s, request, &done), SLUICE_OK);
      EXPECT_EQ(done, 0);
      start.count_down();
      EXPECT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      gpu.synchronize();
      std::vector<float> mean = sum_of_ramps(2, in.size());
      for (float& x : mean) x /= 2;
      EXPECT_EQ(out, mean);
    });
    ++session_;
  }
}

TEST_F(CudaStreams, MemoryAndStreamsOfAnotherGpuAreRefused) {
  start_reducers(1);
  run_session(1, nullptr, [&](uint32_t, sluice_session* s) {
    ScopedGpu other_gpu(1);
    float* const other_memory = other_gpu.allocate<float>(100);  // while its context is current
    ScopedGpu gpu;
    const sluice_stream_options options = gpu_options();
    ASSERT_EQ(sluice_session_open_streams(s, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
    float* const x = gpu.allocate<float>(100);
    std::vector<float> host(100, 1.f);
    const auto refused = [&](const float* send, float* recv, size_t count, CUstream stream,
                             sluice_status status, const char* text) {
      EXPECT_EQ(sluice_allreduce_on_stream(s, send, recv, count, SLUICE_F32, SLUICE_SUM, stream, nullptr),
                status)
          << text;
      EXPECT_THAT(sluice_refusal(), HasSubstr(text));
    };
    refused(other_memory, x, 100, gpu.stream(), SLUICE_INVALID_ARGUMENT, "belongs to GPU 1");
    refused(x, x, 101, gpu.stream(), SLUICE_INVALID_ARGUMENT, "exceed their allocation");
    refused(x, host.data(), 100, gpu.stream(), SLUICE_INVALID_ARGUMENT, "the other host memory");
    refused(x, x, 100, other_gpu.stream(), SLUICE_INVALID_ARGUMENT, "another GPU");
    cuda_stand_in::capture(gpu.stream(), true);
    refused(x, x, 100, gpu.stream(), SLUICE_UNSUPPORTED, "captured");
    cuda_stand_in::capture(gpu.stream(), false);
    // Host memory is reduced in place, in the order of the stream. NULL is the default stream.
    for (CUstream stream : {gpu.stream(), static_cast<CUstream>(nullptr)}) {
      EXPECT_EQ(enqueue(s, host, stream), SLUICE_OK) << sluice_refusal();
      EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(stats_of(s).bytes_staged_out, 0u);
  });
}

TEST_F(CudaStreams, AFailedOpenLeaksNothing) {
  start_reducers(1);
  run_session(1, nullptr, [&](uint32_t, sluice_session* s) {
    const sluice_stream_options options = gpu_options();
    const auto refused = [&](const sluice_stream_options& o, sluice_status status, const char* text) {
      EXPECT_EQ(sluice_session_open_streams(s, &o, nullptr, 0), status) << text;
      EXPECT_THAT(sluice_refusal(), HasSubstr(text));
      EXPECT_EQ(cuda_stand_in::live(), cuda_stand_in::Live{});
    };
    refused(gpu_options(7), SLUICE_INVALID_ARGUMENT, "7");
    for (int nth = 1; nth <= 2; ++nth) {  // the memory of the kernels, then the staging
      cuda_stand_in::fail_call("cuMemHostAlloc", nth, CUDA_ERROR_OUT_OF_MEMORY);
      refused(options, SLUICE_SYSTEM, "CUDA_ERROR_OUT_OF_MEMORY");
    }
    cuda_stand_in::fail_call("cuEventCreate", 3, CUDA_ERROR_OUT_OF_MEMORY);
    refused(options, SLUICE_SYSTEM, "CUDA_ERROR_OUT_OF_MEMORY");
    cuda_stand_in::set_gpus(0);
    refused(options, SLUICE_UNSUPPORTED, "no GPU");
    cuda_stand_in::set_gpus(2);
    // The session is unchanged.
    std::vector<float> x(10, 1.f);
    EXPECT_EQ(sum(s, x), SLUICE_OK);
  });
}

TEST_F(CudaStreams, OpenRequiresStreamMemoryOperations) {
  start_reducers(1);
  run_session(1, nullptr, [&](uint32_t, sluice_session* s) {
    cuda_stand_in::fail_call("cuStreamWaitValue32", 1, CUDA_ERROR_NOT_SUPPORTED);
    const sluice_stream_options options = gpu_options();
    EXPECT_EQ(sluice_session_open_streams(s, &options, nullptr, 0), SLUICE_UNSUPPORTED);
    EXPECT_THAT(sluice_refusal(), HasSubstr("does not support streams that wait for a word in memory"));
  });
}

// The copy back of the last segment fails, after the network. sluice_test must report it as well as
// sluice_wait.
TEST_F(CudaStreams, AFailedCopyBackFailsTheRequest) {
  start_reducers(1);
  for (const bool waits : {false, true}) {
    const Created c = create(options_for(0, 1));
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    {
      ScopedGpu gpu;
      sluice_stream_options options = gpu_options();
      options.wire_dtype = SLUICE_BF16;  // so that a kernel copies back
      ASSERT_EQ(sluice_session_open_streams(c.session, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
      float* const x = gpu.allocate<float>(1000);
      std::latch start(1);
      sluice_request first = 0, request = 0;
      ASSERT_EQ(enqueue(c.session, x, 1000, gpu.stream(), &first), SLUICE_OK);
      ASSERT_EQ(sluice_wait(c.session, first, -1), SLUICE_OK);
      gpu.wait_for(start);
      ASSERT_EQ(enqueue(c.session, x, 1000, gpu.stream(), &request), SLUICE_OK);
      cuda_stand_in::fail_kernel(CUDA_ERROR_ILLEGAL_ADDRESS);
      start.count_down();
      sluice_status status = SLUICE_OK;
      for (int done = 0; status == SLUICE_OK && done == 0;)
        status = waits ? sluice_wait(c.session, request, -1) : sluice_test(c.session, request, &done);
      EXPECT_EQ(status, SLUICE_SYSTEM);
      EXPECT_EQ(sluice_session_error(c.session, nullptr, 0), SLUICE_SYSTEM);
      EXPECT_THAT(reason_of(c.session), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
      EXPECT_NE(sluice_session_close(c.session), SLUICE_OK);
    }
    EXPECT_EQ(cuda_stand_in::live(), cuda_stand_in::Live{});
    cuda_stand_in::reset();
    ++session_;
  }
}

// A kernel of the caller has broken the context while no operation of the session was in flight.
TEST_F(CudaStreams, AnEarlierGpuFailureEndsTheSessionOnAllRanks) {
  start_reducers(1);
  std::latch failed(2);
  each_rank(2, [&](uint32_t rank) {
    const Created c = create(options_for(rank, 2));
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    if (rank == 0) {
      ScopedGpu gpu;
      const sluice_stream_options options = gpu_options();
      ASSERT_EQ(sluice_session_open_streams(c.session, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
      float* const x = gpu.allocate<float>(10);
      cuda_stand_in::fail_call("cuStreamGetCtx", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(enqueue(c.session, x, 10, gpu.stream()), SLUICE_SYSTEM);
      EXPECT_NE(sluice_session_error(c.session, nullptr, 0), SLUICE_OK);
      failed.arrive_and_wait();
      EXPECT_NE(sluice_session_close(c.session), SLUICE_OK);
      return;
    }
    failed.arrive_and_wait();
    std::vector<float> x(1, 1.f);
    EXPECT_NE(sum(c.session, x), SLUICE_OK);
    EXPECT_THAT(reason_of(c.session), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
    EXPECT_NE(sluice_session_close(c.session), SLUICE_OK);
  });
}

// Lets one of the driver calls that enqueue an operation fail. An illegal address breaks the GPU's context.
// Other errors affect the call only, and work enqueued before it continues.
class EnqueueFailure : public CudaStreams, public ::testing::WithParamInterface<CUresult> {
 protected:
  static bool breaks_context(CUresult failure) { return failure == CUDA_ERROR_ILLEGAL_ADDRESS; }
  void run_failing_operation(sluice_session* session, const char* call, int nth, const std::string& error);
};

void EnqueueFailure::run_failing_operation(sluice_session* session, const char* call, int nth,
                                           const std::string& error) {
  ScopedGpu gpu;
  const sluice_stream_options options = gpu_options();
  ASSERT_EQ(sluice_session_open_streams(session, &options, nullptr, 0), SLUICE_OK) << sluice_refusal();
  float* const x = gpu.allocate<float>(1'000'000);
  cuda_stand_in::fail_call(call, nth, GetParam());
  sluice_request request = 0;
  const sluice_status status = enqueue(session, x, 1'000'000, gpu.stream(), &request);
  if (status == SLUICE_OK) {
    EXPECT_EQ(sluice_wait(session, request, -1), SLUICE_SYSTEM) << call;
  } else {
    EXPECT_EQ(status, SLUICE_SYSTEM) << call;
    EXPECT_THAT(sluice_refusal(), HasSubstr(error));
  }
  // The session released the stream if the context is not broken.
  EXPECT_EQ(cuStreamSynchronize(gpu.stream()), breaks_context(GetParam()) ? GetParam() : CUDA_SUCCESS)
      << call;
  EXPECT_EQ(enqueue(session, x, 1, gpu.stream()), SLUICE_SYSTEM);
  EXPECT_EQ(sluice_session_close(session), SLUICE_SYSTEM);
}

// The other ranks receive the error, and no rank blocks.
TEST_P(EnqueueFailure, EndsTheSessionOnAllRanks) {
  if (SLUICE_INSTRUMENTED_THREADS && !breaks_context(GetParam()))
    GTEST_SKIP() << "left out: after the failure, released copies race with earlier ones in memory whose "
                    "content is undefined";
  const std::string error =
      breaks_context(GetParam()) ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OUT_OF_MEMORY";
  start_reducers(1);
  const std::array<std::pair<const char*, int>, 6> calls{{{"cuEventRecord", 3},
                                                          {"cuStreamWaitEvent", 4},
                                                          {"cuStreamWaitValue32", 2},
                                                          {"cuMemcpyDtoHAsync", 2},
                                                          {"cuMemcpyHtoDAsync", 2},
                                                          {"cuEventSynchronize", 1}}};
  for (const auto& [call, nth] : calls) {
    std::latch ready(2);
    each_rank(2, [&, name = call, at_call = nth](uint32_t rank) {
      const Created c = create(options_for(rank, 2));
      ASSERT_EQ(c.status, SLUICE_OK) << c.error;
      ready.arrive_and_wait();
      if (rank == 0) return run_failing_operation(c.session, name, at_call, error);
      while (sluice_session_error(c.session, nullptr, 0) == SLUICE_OK) std::this_thread::yield();
      EXPECT_THAT(reason_of(c.session), HasSubstr(error)) << name;
      EXPECT_NE(sluice_session_close(c.session), SLUICE_OK);
    });
    EXPECT_EQ(cuda_stand_in::live(), cuda_stand_in::Live{}) << call;
    cuda_stand_in::reset();
    ++session_;
  }
}

INSTANTIATE_TEST_SUITE_P(With, EnqueueFailure,
                         ::testing::Values(CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_OUT_OF_MEMORY),
                         [](const auto& test) {
                           return test.param == CUDA_ERROR_ILLEGAL_ADDRESS ? "BrokenContext" : "SingleError";
                         });

}  // namespace
}  // namespace sluice::test
