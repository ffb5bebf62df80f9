#include "transport/tcp/frame_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/units.h"
#include "tests/conformance/transport/frames.h"

namespace sluice::transport::tcp {
namespace {

using test::Bytes;

class NoEndpoint final : public Endpoint {
 public:
  Status put(const wire::FrameHeader&, std::span<const std::byte>, std::span<const std::byte>,
             Cookie) noexcept override {
    return Errc::kClosed;
  }
  void close(Errc) noexcept override {}
  void shutdown() noexcept override {}
  bool idle() const noexcept override { return true; }
  const EndpointCounters& counters() const noexcept override { return counters_; }
  std::string_view peer() const noexcept override { return "none"; }

 private:
  EndpointCounters counters_;
};

class FrameReading : public testing::Test, public Handler {
 public:
  Placement on_header(Endpoint&, const wire::FrameHeader& h, std::span<const std::byte>) noexcept override {
    ++headers;
    if (stop_at_header) reader.stop();
    slot.resize(h.length);
    return {Errc::kOk, slot.data()};
  }
  void on_frame(Endpoint&, const wire::FrameHeader& h, std::span<const std::byte>,
                std::span<std::byte> payload) noexcept override {
    EXPECT_EQ(Bytes(payload.begin(), payload.end()), test::pattern(h.length, h.sequence));
    EXPECT_EQ(h.sequence, frames);
    ++frames;
    if (stop_at_frame) reader.stop();
  }
  void on_sent(Endpoint&, Cookie, Status) noexcept override {}
  void on_closed(Endpoint&, Errc) noexcept override {}

 protected:
  static Bytes stream_of(const std::vector<size_t>& sizes, size_t extensions) {
    Bytes stream;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Bytes payload = test::pattern(sizes[i], i);
      const Bytes frame = test::encode(test::header_for(payload, i, extensions),
                                       test::extension_area(extensions, i), payload);
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
    return stream;
  }

  // Gives at most `most` bytes of `stream` to the reader, as a socket would.
  Status give(std::span<const std::byte>& stream, size_t most) {
    std::array<iovec, 2> buffers;
    const unsigned n = reader.buffers(buffers);
    size_t given = 0;
    for (unsigned i = 0; i < n; ++i) {
      EXPECT_GT(buffers[i].iov_len, 0U);
      EXPECT_LE(buffers[i].iov_len, FrameReader::kPieceBytes);
      const size_t take = std::min({buffers[i].iov_len, most - given, stream.size()});
      std::memcpy(buffers[i].iov_base, stream.data(), take);
      stream = stream.subspan(take);
      given += take;
    }
    return reader.consume(given, endpoint, *this, counters);
  }

 public:
  NoEndpoint endpoint;
  EndpointCounters counters;
  FrameReader reader{wire::kMaxPayload};
  Bytes slot;
  size_t headers = 0, frames = 0;
  bool stop_at_header = false, stop_at_frame = false;
};

TEST_F(FrameReading, GivesTheSameFramesHoweverTheStreamIsCut) {
  const std::vector<size_t> sizes{0,    1,  100,     4096, 300'000, 0,       0, 3968,
                                  3969, 64, 700'001, 5,    262'144, 262'145, 9};
  for (const size_t extensions : {0, 16, 64}) {
    const Bytes stream = stream_of(sizes, extensions);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937_64 random(seed);
      const size_t longest = seed % 4 == 0 ? 300 : seed % 4 == 1 ? 5000 : 400'000;
      std::destroy_at(&reader);
      std::construct_at(&reader, uint32_t{wire::kMaxPayload});
      headers = frames = 0;
      std::span<const std::byte> rest(stream);
      while (!rest.empty()) ASSERT_TRUE(give(rest, 1 + random() % longest).ok());
      EXPECT_EQ(frames, sizes.size());
      EXPECT_FALSE(reader.within_frame());
    }
  }
}

TEST_F(FrameReading, CopiesNoMoreThanTheStageOfLargePayload) {
  const Bytes stream = stream_of(std::vector<size_t>(20, 256 * kKiB), 16);
  std::span<const std::byte> rest(stream);
  while (!rest.empty()) ASSERT_TRUE(give(rest, kMiB).ok());
  EXPECT_EQ(frames, 20U);
  EXPECT_LE(counters.bytes_copied, FrameReader::kStageBytes + 20 * FrameReader::kStageBytesLarge);
}

TEST_F(FrameReading, KnowsWhenItIsWithinAFrame) {
  const Bytes stream = stream_of({10}, 8);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    std::destroy_at(&reader);
    std::construct_at(&reader, uint32_t{wire::kMaxPayload});
    frames = 0;
    std::span<const std::byte> rest = std::span(stream).first(cut);
    while (!rest.empty()) ASSERT_TRUE(give(rest, 1).ok());
    EXPECT_EQ(reader.within_frame(), cut != 0 && cut != stream.size()) << cut;
  }
}

TEST_F(FrameReading, StopsWithinOnHeader) {
  stop_at_header = true;
  const Bytes stream = stream_of({10, 10}, 0);
  std::span<const std::byte> rest(stream);
  ASSERT_TRUE(give(rest, stream.size()).ok());
  EXPECT_EQ(headers, 1U);
  EXPECT_EQ(frames, 0U);
}

TEST_F(FrameReading, StopsWithinOnFrame) {
  stop_at_frame = true;
  const Bytes stream = stream_of({10, 10}, 0);
  std::span<const std::byte> rest(stream);
  ASSERT_TRUE(give(rest, stream.size()).ok());
  EXPECT_EQ(headers, 1U);
  EXPECT_EQ(frames, 1U);
}

}  // namespace
}  // namespace sluice::transport::tcp
