// Class StreamsTestBed runs sessions with streams against reducers in the test's process.
#pragma once

#include <sluice/streams.h>

#include <functional>
#include <future>
#include <memory>

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

class StreamsTestBed : public EngineTestBed {
 protected:
  // 4 staging buffers of 64 KiB in each direction, so that small operations reuse them.
  static sluice_stream_options small_options() {
    sluice_stream_options o;
    sluice_stream_options_init(&o);
    o.staging_bytes = 512 << 10;
    o.piece_bytes = 64 << 10;
    return o;
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
