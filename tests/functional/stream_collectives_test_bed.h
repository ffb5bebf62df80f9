// Class StreamCollectives runs collectives in the order of streams, over all kinds of memory: the host's, the
// host's with staging, and that of GPUs of the CUDA driver stand-in.
#pragma once

#include <cstring>
#include <latch>
#include <numeric>
#include <random>
#include <span>
#include <string>

#include "tests/functional/streams_test_bed.h"
#include "wire/dtype.h"
#ifdef SLUICE_CUDA_STAND_IN
#include "tests/functional/scoped_gpu.h"
#include "tests/support/cuda_stand_in/stand_in.h"
#endif

namespace sluice::test {

using Bytes = std::vector<std::byte>;

inline Bytes noise(uint32_t seed, size_t bytes) {
  std::minstd_rand random(seed + 1);
  Bytes v(bytes);
  for (std::byte& b : v) b = static_cast<std::byte>(random() >> 8);
  return v;
}
inline Bytes bytes_of(const std::vector<float>& values) {
  Bytes v(values.size() * sizeof(float));
  if (!v.empty()) std::memcpy(v.data(), values.data(), v.size());
  return v;
}
inline std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> v(bytes.size() / sizeof(float));
  if (!v.empty()) std::memcpy(v.data(), bytes.data(), v.size() * sizeof(float));
  return v;
}

// The stream and the memory of a rank.
class RankMemory {
 public:
  virtual ~RankMemory() = default;
  [[nodiscard]] virtual sluice_stream stream() = 0;
  // Returns memory with these bytes. Freed with the object.
  [[nodiscard]] virtual std::byte* upload(const Bytes& bytes) = 0;
  // Returns the bytes after all work of the stream.
  [[nodiscard]] virtual Bytes download(const std::byte* from, size_t bytes) = 0;
  virtual void synchronize() = 0;
  // Later work of the stream waits until the latch is open.
  virtual void wait_for(std::latch& start) = 0;
};

class HostRankMemory final : public RankMemory {
 public:
  sluice_stream stream() override { return stream_.get(); }
  std::byte* upload(const Bytes& bytes) override {
    return memory_.emplace_back(std::make_unique<Bytes>(bytes))->data();
  }
  Bytes download(const std::byte* from, size_t bytes) override {
    stream_.synchronize();
    return {from, from + bytes};
  }
  void synchronize() override { stream_.synchronize(); }
  void wait_for(std::latch& start) override {
    stream_.submit([&start] { start.wait(); });
  }

 private:
  std::vector<std::unique_ptr<Bytes>> memory_;
  ScopedHostStream stream_;  // its work uses the memory
};

#ifdef SLUICE_CUDA_STAND_IN
class GpuRankMemory final : public RankMemory {
 public:
  explicit GpuRankMemory(uint32_t rank) : gpu_(static_cast<int>(rank)) {}
  sluice_stream stream() override { return gpu_.stream(); }
  std::byte* upload(const Bytes& bytes) override {
    if (bytes.empty()) return nullptr;
    return gpu_.upload(*sources_.emplace_back(std::make_unique<Bytes>(bytes)));
  }
  Bytes download(const std::byte* from, size_t bytes) override {
    Bytes to(bytes);
    if (bytes > 0) gpu_.download(to, from);
    gpu_.synchronize();
    return to;
  }
  void synchronize() override { gpu_.synchronize(); }
  void wait_for(std::latch& start) override { gpu_.wait_for(start); }

 private:
  std::vector<std::unique_ptr<Bytes>> sources_;  // the stream copies them
  ScopedGpu gpu_;
};
#endif

// "host", "staged", "one_host" (the same without reducers, in shared memory), "gpu" or "gpu_one_queue".
class StreamCollectives : public StreamsTestBed, public ::testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] static bool is_gpu() { return std::string_view(GetParam()).starts_with("gpu"); }
  [[nodiscard]] static bool is_on_one_host() { return std::string_view(GetParam()) == "one_host"; }
  [[nodiscard]] static bool is_staged() { return std::string_view(GetParam()) != "host"; }

#ifdef SLUICE_CUDA_STAND_IN
  static void SetUpTestSuite() {
    ASSERT_EQ(setenv("SLUICE_CUDA_DRIVER", SLUICE_CUDA_STAND_IN, 1), 0);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  void SetUp() override {
    cuda_stand_in::reset();
    cuda_stand_in::set_gpus(4);
    cuda_stand_in::use_one_queue(std::string_view(GetParam()) == "gpu_one_queue");
  }
  void TearDown() override {
    EXPECT_EQ(cuda_stand_in::live(), cuda_stand_in::Live{});
  }
#endif

  void start_pool(size_t reducers) {
    if (!is_on_one_host()) return start_reducers(reducers);
    addresses_ = "none";
    ::setenv("SLUICE_HOSTS", "auto", 1);
  }

  [[nodiscard]] static sluice_stream_options options_of(uint32_t rank) {
    sluice_stream_options o = small_options(is_staged() && !is_gpu() ? 1 : 0);
    if (!is_gpu()) return o;
    o.device_kind = SLUICE_DEVICE_CUDA;
    o.device = static_cast<int32_t>(rank);
    return o;
  }
  [[nodiscard]] static std::unique_ptr<RankMemory> memory_of([[maybe_unused]] uint32_t rank) {
#ifdef SLUICE_CUDA_STAND_IN
    if (is_gpu()) return std::make_unique<GpuRankMemory>(rank);
#endif
    return std::make_unique<HostRankMemory>();
  }

  using Adjust = std::function<void(sluice_stream_options&)>;
  using Body = std::function<void(uint32_t, sluice_session*, RankMemory&)>;
  // All ranks join, open streams, run `body`, and close.
  void run_on_streams(uint32_t ranks, const Adjust& adjust, const Body& body) {
    run_session(ranks, nullptr, [&](uint32_t rank, sluice_session* s) {
      const std::unique_ptr<RankMemory> memory = memory_of(rank);
      sluice_stream_options o = options_of(rank);
      if (adjust) adjust(o);
      ASSERT_EQ(sluice_session_open_streams(s, &o, nullptr, 0), SLUICE_OK) << sluice_refusal();
      body(rank, s, *memory);
    });
    ++session_;
  }

  static sluice_stats network_stats(sluice_session* s) {
    sluice_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(sluice_session_stats(s, &stats), SLUICE_OK);
    return stats;
  }
};

inline std::vector<const char*> memory_names() {
#ifdef SLUICE_CUDA_STAND_IN
  return {"host", "staged", "one_host", "gpu", "gpu_one_queue"};
#else
  return {"host", "staged", "one_host"};
#endif
}

}  // namespace sluice::test
