#include "transport/tcp/frame_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/units.h"
#include "tests/conformance/transport/frames.h"
#include "tests/support/fake_endpoint.h"

namespace sluice::transport::tcp {
namespace {

using test::Bytes;

// How the handler predicts frames.
enum class Prediction { kNothing, kCorrect, kOtherBuffer, kShorter, kLonger, kOtherExtensions, kRandom };

// Each frame has its own buffer, so that bytes written too early are detected.
class FrameReaderFixture : public testing::Test, public Handler {
 public:
  static constexpr size_t kBuffers = 20;

  ReceiveTarget on_header(Endpoint&, const wire::FrameHeader& h,
                          std::span<const std::byte>) noexcept override {
    ++headers;
    if (stop_at_header) reader.stop();
    EXPECT_LE(h.length, kBufferBytes);
    return {Errc::kOk, buffer(frames)};
  }
  ExpectedFrame expected_frame(Endpoint&, unsigned ahead) noexcept override {
    const size_t i = frames + ahead;
    if (i >= upcoming.size()) return {};
    ExpectedFrame f{.payload = buffer(i),
                    .length = static_cast<uint32_t>(upcoming[i]),
                    .extension_bytes = static_cast<uint32_t>(extension_bytes)};
    switch (prediction == Prediction::kRandom ? static_cast<Prediction>(random() % 6) : prediction) {
      case Prediction::kNothing: return {};
      case Prediction::kOtherBuffer: f.payload = buffer(i + kBuffers / 2); break;
      case Prediction::kShorter: f.length -= std::min(f.length, 1000U); break;
      case Prediction::kLonger: f.length += 1000; break;
      case Prediction::kOtherExtensions: f.extension_bytes = extension_bytes == 0 ? 16 : 0; break;
      default: break;
    }
    return f;
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

  // Feeds at most `most` bytes of `stream` to the reader, like a socket. The first call of buffers() stays
  // unfilled, as after a receive that filled all buffers.
  Status feed_stream(std::span<const std::byte>& stream, size_t most) {
    std::array<iovec, FrameReader::kBlocks> buffers;
    static_cast<void>(reader.buffers(endpoint, *this, buffers));
    const unsigned n = reader.buffers(endpoint, *this, buffers);
    size_t given = 0;
    ++calls;
    for (unsigned i = 0; i < n; ++i) {
      EXPECT_GT(buffers[i].iov_len, 0U);
      EXPECT_LE(buffers[i].iov_len, FrameReader::kMaxReadBytes);
      const size_t take = std::min({buffers[i].iov_len, most - given, stream.size()});
      std::memcpy(buffers[i].iov_base, stream.data(), take);
      stream = stream.subspan(take);
      given += take;
    }
    return reader.consume(given, endpoint, *this, counters);
  }

 public:
  sluice::test::FakeEndpoint endpoint;
  EndpointCounters counters;
  static constexpr size_t kBufferBytes = kMiB;
  std::byte* buffer(size_t frame) { return memory.data() + frame % kBuffers * kBufferBytes; }
  void restart() {
    std::destroy_at(&reader);
    std::construct_at(&reader, uint32_t{wire::kMaxPayload}, std::span(scratch));
    headers = frames = calls = 0;
    counters = {};
  }
  // Restarts and feeds the whole stream. The seed selects the longest part: short, `medium` or long.
  void feed_in_random_parts(std::span<const std::byte> stream, uint64_t seed, size_t medium) {
    random.seed(seed);
    const size_t longest = seed % 4 == 0 ? 300 : seed % 4 == 1 ? medium : 400'000;
    restart();
    while (!stream.empty()) ASSERT_TRUE(feed_stream(stream, 1 + random() % longest).ok());
  }

  Bytes scratch = Bytes(FrameReader::kScratchBytes);
  FrameReader reader{wire::kMaxPayload, scratch};
  Bytes memory = Bytes(kBuffers * kBufferBytes);
  Prediction prediction = Prediction::kNothing;
  std::vector<size_t> upcoming;  // lengths of all frames, for predictions
  size_t extension_bytes = 0;
  std::mt19937_64 random;
  size_t headers = 0, frames = 0, calls = 0;
  bool stop_at_header = false, stop_at_frame = false;
};

TEST_F(FrameReaderFixture, ParsesTheSameFramesForAnySplitOfTheStream) {
  const std::vector<size_t> sizes{0,    1,  100,     4096, 300'000, 0,       0, 3968,
                                  3969, 64, 700'001, 5,    262'144, 262'145, 9};
  for (const size_t extensions : {0, 16, 64}) {
    const Bytes stream = stream_of(sizes, extensions);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(seed);
      ASSERT_NO_FATAL_FAILURE(feed_in_random_parts(stream, seed, 5000));
      EXPECT_EQ(frames, sizes.size());
      EXPECT_FALSE(reader.within_frame());
    }
  }
}

TEST_F(FrameReaderFixture, ParsesTheSameFramesForAnyPrediction) {
  const std::vector<size_t> sizes{20'000, 20'000, 20'000,  5, 20'000, 0,      16'384, 16'384, 9000,
                                  16'384, 4096,   300'000, 1, 70'000, 70'000, 70'000, 5000,   5000};
  upcoming = sizes;
  for (const size_t extensions : {0, 16}) {
    extension_bytes = extensions;
    const Bytes stream = stream_of(sizes, extensions);
    for (const Prediction g : {Prediction::kCorrect, Prediction::kOtherBuffer, Prediction::kShorter,
                               Prediction::kLonger, Prediction::kOtherExtensions, Prediction::kRandom}) {
      prediction = g;
      for (uint64_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(testing::Message() << extensions << " " << static_cast<int>(g) << " " << seed);
        ASSERT_NO_FATAL_FAILURE(feed_in_random_parts(stream, seed, 30'000));
        EXPECT_EQ(frames, sizes.size());
        EXPECT_FALSE(reader.within_frame());
      }
    }
  }
}

TEST_F(FrameReaderFixture, ReceivesAllPredictedFramesInOneRead) {
  upcoming.assign(64, 16 * kKiB);
  extension_bytes = 16;
  prediction = Prediction::kCorrect;
  const Bytes stream = stream_of(upcoming, 16);
  std::span<const std::byte> rest(stream);
  while (!rest.empty()) ASSERT_TRUE(feed_stream(rest, 10 * kMiB).ok());
  EXPECT_EQ(frames, 64U);
  EXPECT_LE(calls, 2 + 64 / FrameReader::kMaxPredicted);
  EXPECT_LE(counters.bytes_copied, FrameReader::kStageBytes + calls * FrameReader::kStageBytesLarge);
}

TEST_F(FrameReaderFixture, LimitsPredictionsToOneRead) {
  upcoming.assign(16, 100 * kKiB);
  prediction = Prediction::kCorrect;
  const Bytes stream = stream_of(upcoming, 0);
  std::span<const std::byte> rest(stream);
  while (!rest.empty()) {
    const size_t before = rest.size();
    ASSERT_TRUE(feed_stream(rest, 10 * kMiB).ok());
    EXPECT_LE(before - rest.size(), FrameReader::kMaxReadBytes + 4 * FrameReader::kStageBytes);
  }
}

TEST_F(FrameReaderFixture, StopsAmongPredictedFrames) {
  upcoming.assign(8, 16 * kKiB);
  prediction = Prediction::kCorrect;
  const Bytes stream = stream_of(upcoming, 0);
  std::span<const std::byte> rest(stream);
  ASSERT_TRUE(feed_stream(rest, 10 * kKiB).ok());  // within the first frame
  stop_at_frame = true;
  ASSERT_TRUE(feed_stream(rest, 10 * kMiB).ok());
  EXPECT_EQ(frames, 1U);
  EXPECT_EQ(headers, 1U);
}

TEST_F(FrameReaderFixture, CopiesOnlyTheStageForLargePayloads) {
  const Bytes stream = stream_of(std::vector<size_t>(20, 256 * kKiB), 16);
  std::span<const std::byte> rest(stream);
  while (!rest.empty()) ASSERT_TRUE(feed_stream(rest, kMiB).ok());
  EXPECT_EQ(frames, 20U);
  EXPECT_LE(counters.bytes_copied, FrameReader::kStageBytes + 20 * FrameReader::kStageBytesLarge);
}

TEST_F(FrameReaderFixture, KnowsWhetherItIsWithinAFrame) {
  const Bytes stream = stream_of({10}, 8);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    restart();
    std::span<const std::byte> rest = std::span(stream).first(cut);
    while (!rest.empty()) ASSERT_TRUE(feed_stream(rest, 1).ok());
    EXPECT_EQ(reader.within_frame(), cut != 0 && cut != stream.size()) << cut;
  }
}

TEST_F(FrameReaderFixture, StopsWithinOnHeader) {
  stop_at_header = true;
  const Bytes stream = stream_of({10, 10}, 0);
  std::span<const std::byte> rest(stream);
  ASSERT_TRUE(feed_stream(rest, stream.size()).ok());
  EXPECT_EQ(headers, 1U);
  EXPECT_EQ(frames, 0U);
}

TEST_F(FrameReaderFixture, StopsWithinOnFrame) {
  stop_at_frame = true;
  const Bytes stream = stream_of({10, 10}, 0);
  std::span<const std::byte> rest(stream);
  ASSERT_TRUE(feed_stream(rest, stream.size()).ok());
  EXPECT_EQ(headers, 1U);
  EXPECT_EQ(frames, 1U);
}

TEST_F(FrameReaderFixture, AcceptsBuffersOfTheCaller) {
  const Bytes first = stream_of({1000, 0, 300}, 16);
  ASSERT_TRUE(reader.feed(std::span(first).first(500), endpoint, *this, counters).ok());
  ASSERT_TRUE(reader.feed(std::span(first).subspan(500), endpoint, *this, counters).ok());
  EXPECT_EQ(frames, 3U);
  EXPECT_EQ(counters.bytes_copied, 1300U);
}

TEST_F(FrameReaderFixture, RefusesABufferThatEndsWithinAHeader) {
  const Bytes stream = stream_of({1000}, 16);
  EXPECT_EQ(reader.feed(std::span(stream).first(wire::kHeaderBytes + 8), endpoint, *this, counters),
            Errc::kBadLength);
  EXPECT_EQ(headers, 0U);
}

}  // namespace
}  // namespace sluice::transport::tcp
