// Class ScopedGpu is a GPU of the CUDA driver stand-in, as a rank uses it.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <latch>
#include <vector>

namespace sluice::test {

// The CUDA state of a rank: a context that is current on the test's thread, memory and a stream.
class ScopedGpu {
 public:
  explicit ScopedGpu(int ordinal = 0) : ordinal_(ordinal) {
    CUcontext context = nullptr;
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, ordinal), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~ScopedGpu() {
    // Errors are ignored: a failed GPU returns its error again and frees everything with its context.
    for (const CUdeviceptr at : memory_) (void)cuMemFree(at);
    (void)cuStreamDestroy(stream_);
    CUcontext context = nullptr;
    EXPECT_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(ordinal_), CUDA_SUCCESS);
  }
  ScopedGpu(const ScopedGpu&) = delete;
  [[nodiscard]] CUstream stream() const { return stream_; }
  void synchronize() { ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS); }
  // Later work of the stream waits until the latch is open.
  void wait_for(std::latch& start) {
    const auto wait = [](void* argument) { static_cast<std::latch*>(argument)->wait(); };
    ASSERT_EQ(cuLaunchHostFunc(stream_, wait, &start), CUDA_SUCCESS);
  }

  template <typename T>
  T* allocate(size_t count) {
    CUdeviceptr at = 0;
    EXPECT_EQ(cuMemAlloc(&at, count * sizeof(T)), CUDA_SUCCESS);
    memory_.push_back(at);
    return reinterpret_cast<T*>(at);
  }
  // Enqueues the copy; `from` must stay unchanged until the stream is synchronized.
  template <typename T>
  T* upload(const std::vector<T>& from) {
    T* const to = allocate<T>(from.size());
    EXPECT_EQ(
        cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to), from.data(), from.size() * sizeof(T), stream_),
        CUDA_SUCCESS);
    return to;
  }
  template <typename T>
  void download(std::vector<T>& to, const T* from) {
    EXPECT_EQ(
        cuMemcpyDtoHAsync(to.data(), reinterpret_cast<CUdeviceptr>(from), to.size() * sizeof(T), stream_),
        CUDA_SUCCESS);
  }

 private:
  const int ordinal_;
  CUstream stream_ = nullptr;
  std::vector<CUdeviceptr> memory_;
};

}  // namespace sluice::test
