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

// What a handler says of frames that are still to come.
enum class Guess { kNothing, kRight, kOtherPlace, kShorter, kLonger, kOtherExtensions, kAny };

// Frame i goes to its own place, so that what is written there too early shows.
class FrameReading : public testing::Test, public Handler {
 public:
  static constexpr size_t kPlaces = 20;

  Placement on_header(Endpoint&, const wire::FrameHeader& h, std::span<const std::byte>) noexcept override {
    ++headers;
    if (stop_at_header) reader.stop();
    EXPECT_LE(h.length, kPlaceBytes);
    return {Errc::kOk, place(frames)};
  }
  Forecast forecast(Endpoint&, unsigned ahead) noexcept override {
    const size_t i = frames + ahead;
    if (i >= coming.size()) return {};
    Forecast f{.payload = place(i),
               .length = static_cast<uint32_t>(coming[i]),
               .extension_bytes = static_cast<uint32_t>(extension_bytes)};
    switch (guess == Guess::kAny ? static_cast<Guess>(random() % 6) : guess) {
      case Guess::kNothing: return {};
      case Guess::kOtherPlace: f.payload = place(i + kPlaces / 2); break;
      case Guess::kShorter: f.length -= std::min(f.length, 1000U); break;
      case Guess::kLonger: f.length += 1000; break;
      case Guess::kOtherExtensions: f.extension_bytes = extension_bytes == 0 ? 16 : 0; break;
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

  // Gives at most `most` bytes of `stream` to the reader, as a socket would: it is asked in vain first, as
  // after a receive that was filled to the last byte.
  Status give(std::span<const std::byte>& stream, size_t most) {
    std::array<iovec, FrameReader::kBlocks> buffers;
    static_cast<void>(reader.buffers(endpoint, *this, buffers));
    const unsigned n = reader.buffers(endpoint, *this, buffers);
    size_t given = 0;
    ++calls;
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
  static constexpr size_t kPlaceBytes = kMiB;
  std::byte* place(size_t frame) { return memory.data() + frame % kPlaces * kPlaceBytes; }
  void start_again() {
    std::destroy_at(&reader);
    std::construct_at(&reader, uint32_t{wire::kMaxPayload}, std::span(scratch));
    headers = frames = calls = 0;
    counters = {};
  }

  Bytes scratch = Bytes(FrameReader::kScratchBytes);
  FrameReader reader{wire::kMaxPayload, scratch};
  Bytes memory = Bytes(kPlaces * kPlaceBytes);
  Guess guess = Guess::kNothing;
  std::vector<size_t> coming;  // lengths, for forecasts
  size_t extension_bytes = 0;
  std::mt19937_64 random;
  size_t headers = 0, frames = 0, calls = 0;
  bool stop_at_header = false, stop_at_frame = false;
};

TEST_F(FrameReading, GivesTheSameFramesHoweverTheStreamIsCut) {
  const std::vector<size_t> sizes{0,    1,  100,     4096, 300'000, 0,       0, 3968,
                                  3969, 64, 700'001, 5,    262'144, 262'145, 9};
  for (const size_t extensions : {0, 16, 64}) {
    const Bytes stream = stream_of(sizes, extensions);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(seed);
      random.seed(seed);
      const size_t longest = seed % 4 == 0 ? 300 : seed % 4 == 1 ? 5000 : 400'000;
      start_again();
      std::span<const std::byte> rest(stream);
      while (!rest.empty()) ASSERT_TRUE(give(rest, 1 + random() % longest).ok());
      EXPECT_EQ(frames, sizes.size());
      EXPECT_FALSE(reader.within_frame());
    }
  }
}

TEST_F(FrameReading, GivesTheSameFramesWhateverIsForeseen) {
  const std::vector<size_t> sizes{20'000, 20'000, 20'000,  5, 20'000, 0,      16'384, 16'384, 9000,
                                  16'384, 4096,   300'000, 1, 70'000, 70'000, 70'000, 5000,   5000};
  coming = sizes;
  for (const size_t extensions : {0, 16}) {
    extension_bytes = extensions;
    const Bytes stream = stream_of(sizes, extensions);
    for (const Guess g : {Guess::kRight, Guess::kOtherPlace, Guess::kShorter, Guess::kLonger,
                          Guess::kOtherExtensions, Guess::kAny}) {
      guess = g;
      for (uint64_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(testing::Message() << extensions << " " << static_cast<int>(g) << " " << seed);
        random.seed(seed);
        const size_t longest = seed % 4 == 0 ? 300 : seed % 4 == 1 ? 30'000 : 400'000;
        start_again();
        std::span<const std::byte> rest(stream);
        while (!rest.empty()) ASSERT_TRUE(give(rest, 1 + random() % longest).ok());
        EXPECT_EQ(frames, sizes.size());
        EXPECT_FALSE(reader.within_frame());
      }
    }
  }
}

TEST_F(FrameReading, ReceivesAsManyFramesByOneCallAsAreForeseen) {
  coming.assign(64, 16 * kKiB);
  extension_bytes = 16;
  guess = Guess::kRight;
  const Bytes stream = stream_of(coming, 16);
  std::span<const std::byte> rest(stream);
  while (!rest.empty()) ASSERT_TRUE(give(rest, 10 * kMiB).ok());
  EXPECT_EQ(frames, 64U);
  EXPECT_LE(calls, 2 + 64 / FrameReader::kAhead);
  EXPECT_LE(counters.bytes_copied, FrameReader::kStageBytes + calls * FrameReader::kStageBytesLarge);
}

TEST_F(FrameReading, ForeseesNoMoreThanAPiece) {
  coming.assign(16, 100 * kKiB);
  guess = Guess::kRight;
  const Bytes stream = stream_of(coming, 0);
  std::span<const std::byte> rest(stream);
  while (!rest.empty()) {
    const size_t before = rest.size();
    ASSERT_TRUE(give(rest, 10 * kMiB).ok());
    EXPECT_LE(before - rest.size(), FrameReader::kPieceBytes + 4 * FrameReader::kStageBytes);
  }
}

TEST_F(FrameReading, StopsAmongForeseenFrames) {
  coming.assign(8, 16 * kKiB);
  guess = Guess::kRight;
  const Bytes stream = stream_of(coming, 0);
  std::span<const std::byte> rest(stream);
  ASSERT_TRUE(give(rest, 10 * kKiB).ok());  // within the first
  stop_at_frame = true;
  ASSERT_TRUE(give(rest, 10 * kMiB).ok());
  EXPECT_EQ(frames, 1U);
  EXPECT_EQ(headers, 1U);
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
    start_again();
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

TEST_F(FrameReading, TakesBuffersOfItsFeeder) {
  const Bytes first = stream_of({1000, 0, 300}, 16);
  ASSERT_TRUE(reader.feed(std::span(first).first(500), endpoint, *this, counters).ok());
  ASSERT_TRUE(reader.feed(std::span(first).subspan(500), endpoint, *this, counters).ok());
  EXPECT_EQ(frames, 3U);
  EXPECT_EQ(counters.bytes_copied, 1300U);
}

TEST_F(FrameReading, RefusesABufferThatCutsAHeader) {
  const Bytes stream = stream_of({1000}, 16);
  EXPECT_EQ(reader.feed(std::span(stream).first(wire::kHeaderBytes + 8), endpoint, *this, counters),
            Errc::kBadLength);
  EXPECT_EQ(headers, 0U);
}

}  // namespace
}  // namespace sluice::transport::tcp
