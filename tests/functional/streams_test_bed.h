// Class StreamsTestBed runs sessions with streams against reducers in the test's process.
#pragma once

#include <sluice/streams.h>

#include <functional>
#include <future>
#include <memory>
#include <random>
#include <type_traits>

#include "core/float_bits.h"
#include "tests/functional/engine_test_bed.h"

namespace sluice::test {

// Owns a host stream.
class ScopedHostStream {
 public:
  ScopedHostStream() { EXPECT_EQ(sluice_host_stream_create(&stream_), SLUICE_OK) << sluice_refusal(); }
  ~ScopedHostStream() { EXPECT_EQ(sluice_host_stream_destroy(stream_), SLUICE_OK); }
  ScopedHostStream(const ScopedHostStream&) = delete;
  [[nodiscard]] sluice_stream get() const { return stream_; }
  void submit(std::function<void()> work) {
    auto* const callable = new std::function<void()>(std::move(work));
    const auto run = [](void* argument) {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(argument));
      (*owned)();
    };
    ASSERT_EQ(sluice_host_stream_submit(stream_, run, callable), SLUICE_OK);
  }
  void synchronize() { ASSERT_EQ(sluice_host_stream_synchronize(stream_), SLUICE_OK); }

 private:
  sluice_stream stream_ = nullptr;
};

inline std::vector<float> gaussian(uint32_t seed, size_t count, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.f, deviation);
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

// Returns the bits of the values, because NaN do not compare equal.
inline std::vector<uint32_t> bits_of_all(const std::vector<float>& v) {
  std::vector<uint32_t> bits(v.size());
  std::ranges::transform(v, bits.begin(), bits_of);
  return bits;
}

class StreamsTestBed : public EngineTestBed {
 protected:
  // 4 staging buffers of 64 KiB in each direction, so that small operations reuse them.
  static sluice_stream_options small_options(uint32_t always_staged = 0) {
    sluice_stream_options o;
    sluice_stream_options_init(&o);
    o.always_staged = always_staged;
    o.staging_bytes = 512 << 10;
    o.piece_bytes = 64 << 10;
    return o;
  }

  // Creates a session and opens its streams.
  static Created create_with_streams(const sluice_options& options, const sluice_stream_options& streams) {
    const Created c = create(options);
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    EXPECT_EQ(sluice_session_open_streams(c.session, &streams, nullptr, 0), SLUICE_OK) << sluice_refusal();
    return c;
  }

  // Reduces the elements in place, in the order of the stream.
  template <typename T>
  static sluice_status enqueue(sluice_session* s, T* x, size_t count, sluice_stream stream,
                               sluice_request* request = nullptr, sluice_op op = SLUICE_SUM) {
    constexpr sluice_dtype kType = std::is_same_v<T, double> ? SLUICE_F64 : SLUICE_F32;
    return sluice_allreduce_on_stream(s, x, x, count, kType, op, stream, request);
  }
  template <typename T>
  static sluice_status enqueue(sluice_session* s, std::vector<T>& x, sluice_stream stream,
                               sluice_request* request = nullptr, sluice_op op = SLUICE_SUM) {
    return enqueue(s, x.data(), x.size(), stream, request, op);
  }

  // All ranks join, open streams with `options`, run `body`, and close.
  void run_streams(uint32_t ranks, const sluice_stream_options& options,
                   const std::function<void(uint32_t, sluice_session*)>& body) {
    run_session(ranks, nullptr, [&](uint32_t rank, sluice_session* s) {
      std::array<char, 512> error{};
      ASSERT_EQ(sluice_session_open_streams(s, &options, error.data(), error.size()), SLUICE_OK)
          << error.data();
      body(rank, s);
    });
    ++session_;
  }

  static sluice_stream_stats stats_of(sluice_session* s) {
    sluice_stream_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(sluice_session_stream_stats(s, &stats), SLUICE_OK) << sluice_refusal();
    return stats;
  }
};

}  // namespace sluice::test
