// The steady-state cost of a frame over TCP in allocations, system calls and copied bytes. These counts show
// a regression on a machine of any speed.
#include <atomic>
#include <cstdlib>
#include <new>

#include "core/clock.h"
#include "tests/conformance/transport/frames.h"
#include "tests/conformance/transport/transport_fixture.h"
#include "tests/conformance/transport/transport_test_bed.h"

namespace {
std::atomic<uint64_t> allocations{0};

void* counted(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
}  // namespace

// Not inlined: if only some are inlined, g++ warns about mismatched malloc and delete.
[[gnu::noinline]] void* operator new(size_t size) {
  return counted(size);
}
[[gnu::noinline]] void* operator new[](size_t size) {
  return counted(size);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}

namespace sluice::transport::test {
namespace {

// Sends frames to a FakeSink without allocating.
class FakeSource final : public Handler {
 public:
  explicit FakeSource(size_t size) : payload_(pattern(size, 1)), header_(header_for(payload_, 0)) {}
  void fill() {
    while (endpoint->put(header_, {}, payload_, 0).ok()) {
    }
  }
  ReceiveTarget on_header(Endpoint&, const wire::FrameHeader&, std::span<const std::byte>) noexcept override {
    return {Errc::kUnexpectedMessage, nullptr};
  }
  void on_frame(Endpoint&, const wire::FrameHeader&, std::span<const std::byte>,
                std::span<std::byte>) noexcept override {}
  void on_sent(Endpoint&, Cookie, Status) noexcept override {}
  void on_closed(Endpoint&, Errc) noexcept override { FAIL() << "closed"; }
  Endpoint* endpoint = nullptr;

 private:
  Bytes payload_;
  wire::FrameHeader header_;
};

class FakeSink final : public Handler {
 public:
  FakeSink(size_t size, bool predicts) : size_(size), predicts_(predicts), slots_(kSlots * size) {}
  ReceiveTarget on_header(Endpoint&, const wire::FrameHeader&, std::span<const std::byte>) noexcept override {
    return {Errc::kOk, slot(frames)};
  }
  ExpectedFrame expected_frame(Endpoint&, unsigned ahead) noexcept override {
    if (!predicts_) return {};
    return {.payload = slot(frames + ahead), .length = static_cast<uint32_t>(size_)};
  }
  void on_frame(Endpoint&, const wire::FrameHeader&, std::span<const std::byte>,
                std::span<std::byte>) noexcept override {
    ++frames;
  }
  void on_sent(Endpoint&, Cookie, Status) noexcept override {}
  void on_closed(Endpoint&, Errc) noexcept override { FAIL() << "closed"; }
  Endpoint* endpoint = nullptr;
  uint64_t frames = 0;

 private:
  static constexpr size_t kSlots = 12;
  std::byte* slot(uint64_t frame) { return slots_.data() + frame % kSlots * size_; }

  const size_t size_;
  const bool predicts_;
  Bytes slots_;
};

struct Cost {
  double allocations, send_calls, receive_calls, bytes_copied;  // per frame
};

Cost measure(size_t size, uint64_t frames, bool predicts = false) {
  TransportTestBed test_bed = make_test_bed("tcp");
  FakeSource source(size);
  FakeSink sink(size, predicts);
  std::tie(source.endpoint, sink.endpoint) = test_bed.connect(source, sink, {.send_queue = 16});
  const auto run = [&](uint64_t until) {
    const Nanos deadline = monotonic_now() + kTestTimeout;
    while (sink.frames < until && monotonic_now() < deadline) {
      source.fill();
      test_bed.a->poll(monotonic_now(), kBudget);
      test_bed.b->poll(monotonic_now(), kBudget);
    }
    EXPECT_GE(sink.frames, until);
  };
  run(frames / 4);
  const EndpointCounters out = source.endpoint->counters(), in = sink.endpoint->counters();
  const uint64_t allocated = allocations.load();
  run(frames);
  const auto per_frame = [&](uint64_t after, uint64_t before, uint64_t n) {
    return static_cast<double>(after - before) / static_cast<double>(n);
  };
  const uint64_t received = sink.endpoint->counters().frames_in - in.frames_in;
  const uint64_t sent = source.endpoint->counters().frames_out - out.frames_out;
  return {per_frame(allocations.load(), allocated, received),
          per_frame(source.endpoint->counters().send_calls, out.send_calls, sent),
          per_frame(sink.endpoint->counters().receive_calls, in.receive_calls, received),
          per_frame(sink.endpoint->counters().bytes_copied, in.bytes_copied, received)};
}

TEST(TcpCost, OfLargeFrames) {
  const Cost c = measure(256 * kKiB, 1000);
  EXPECT_EQ(c.allocations, 0);
  EXPECT_LE(c.send_calls, 1.5);
  EXPECT_LE(c.receive_calls, 3);
  EXPECT_LE(c.bytes_copied, 256);
}

TEST(TcpCost, OfSmallFrames) {
  const Cost c = measure(256, 20'000);
  EXPECT_EQ(c.allocations, 0);
  EXPECT_LE(c.send_calls, 0.2);
  EXPECT_LE(c.receive_calls, 0.3);
}

TEST(TcpCost, OfPredictedFrames) {
  const Cost c = measure(16 * kKiB, 5000, true);
  EXPECT_EQ(c.allocations, 0);
  EXPECT_LE(c.send_calls, 0.2);
  EXPECT_LE(c.receive_calls, 0.3);
  EXPECT_LE(c.bytes_copied, 256);
}

TEST(TcpCost, OfFramesLargerThanOneRead) {
  const Cost c = measure(4 * kMiB, 60);
  EXPECT_EQ(c.allocations, 0);
  EXPECT_LE(c.receive_calls, 48);
  EXPECT_LE(c.bytes_copied, 256);
}

}  // namespace
}  // namespace sluice::transport::test
