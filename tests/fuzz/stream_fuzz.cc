// Fuzzes FrameReader of the TCP transport with a stream of frames, raw bytes and altered frames. For any
// split of the stream and any predictions, headers, frames and the reason to close must equal those of the
// model.
#include <array>
#include <map>

#include "core/assert.h"
#include "tests/fuzz/frame_script.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/stream_model.h"
#include "tests/support/fake_endpoint.h"
#include "transport/tcp/frame_reader.h"

namespace sluice::fuzz {
namespace {

using transport::tcp::FrameReader;

constexpr uint32_t kMaxPayload = 16 * 1024;

// Compares each callback with the next step of the model.
class CheckingHandler final : public transport::Handler {
 public:
  CheckingHandler(StreamModel& model, FrameReader& reader, uint8_t stop_after, Input& input)
      : model_(model), reader_(reader), stop_after_(stop_after), input_(input) {}

  transport::ReceiveTarget on_header(transport::Endpoint&, const wire::FrameHeader& header,
                                     std::span<const std::byte> extensions) noexcept override {
    const auto step = model_.next();
    SLUICE_ASSERT(step.kind == StreamModel::Step::Kind::kHeader);
    SLUICE_ASSERT(step.header == header && std::ranges::equal(step.extensions, extensions));
    last_length_ = header.length;
    if (header.op_id == kRefuse) return {.status = Errc::kBadSession};
    if (const auto prediction = predicted_.find(frame_number_);
        prediction != predicted_.end() && prediction->second.size() == header.length) {
      return {.status = Errc::kOk, .payload = prediction->second.data()};
    }
    payload_.assign(header.length,
                    std::byte{0xcc});  // exactly the length, so that ASan detects a write past it
    return {.status = Errc::kOk, .payload = header.length == 0 ? nullptr : payload_.data()};
  }
  transport::ExpectedFrame expected_frame(transport::Endpoint&, unsigned ahead) noexcept override {
    const uint8_t prediction = input_.u8();
    const uint32_t length = (prediction & 4) != 0 ? 4000 + prediction * 32U : last_length_;
    if ((prediction & 1) == 0 || length == 0) return {};
    Bytes& buffer = predicted_[frame_number_ + ahead];
    buffer.assign(length, std::byte{0xdd});
    return {.payload = buffer.data(), .length = length, .extension_bytes = (prediction & 2) != 0 ? 8U : 0U};
  }
  void on_frame(transport::Endpoint&, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::span<std::byte> payload) noexcept override {
    const auto step = model_.next();
    SLUICE_ASSERT(step.kind == StreamModel::Step::Kind::kFrame);
    SLUICE_ASSERT(step.header == header && std::ranges::equal(step.extensions, extensions));
    SLUICE_ASSERT(std::ranges::equal(step.payload, payload));
    predicted_.erase(frame_number_++);
    if (++frames_ == stop_after_) {
      reader_.stop();
      stopped_ = true;
    }
  }
  void on_sent(transport::Endpoint&, transport::Cookie, Status) noexcept override {}
  void on_closed(transport::Endpoint&, Errc) noexcept override {}

  [[nodiscard]] bool stopped() const { return stopped_; }
  static constexpr uint32_t kRefuse = 0xdead;

 private:
  StreamModel& model_;
  FrameReader& reader_;
  const uint8_t stop_after_;
  Input& input_;
  uint8_t frames_ = 0;
  bool stopped_ = false;
  Bytes payload_;
  uint32_t last_length_ = 0;
  uint64_t frame_number_ = 0;
  std::map<uint64_t, Bytes> predicted_;  // by frame number
};

Bytes build_stream(Input& in) {
  Bytes stream;
  const auto add = [&](std::span<const std::byte> b) { stream.insert(stream.end(), b.begin(), b.end()); };
  for (unsigned frames = 0; frames < 12 && !in.empty(); ++frames) {
    const uint8_t choice = in.u8();
    FrameParts parts;
    parts.header.flags = wire::kFlagPayloadCrc;
    parts.header.op_id = in.u8() == 0xff ? CheckingHandler::kRefuse : 0;
    if ((choice & 1) != 0) {
      parts.header.type = wire::FrameType::kContribution;
      parts.header.kind = wire::Kind::kAllreduce;
      parts.payload = in.exactly(1 + in.take<uint16_t>() % kMaxPayload);
    } else {
      parts.header.type = wire::FrameType::kHeartbeat;
      parts.payload = in.exactly(in.u8());
    }
    if ((choice & 2) != 0) parts.extensions = Bytes(8);  // type 0: unknown, optional
    switch (choice >> 2 & 3) {
      case 0: add(in.at_most(in.u8())); break;
      case 1: add(encode_altered(std::move(parts), in)); break;
      default: add(encode(std::move(parts))); break;
    }
  }
  return stream;
}

}  // namespace

void fuzz_one(Input in) {
  const uint8_t stop_after = in.u8();  // 0: never
  Bytes cuts_bytes = in.exactly(1 + in.u8() % 32);
  Input cuts(reinterpret_cast<const uint8_t*>(cuts_bytes.data()), cuts_bytes.size());
  const Bytes stream = build_stream(in);

  StreamModel model(kMaxPayload);
  Bytes scratch(FrameReader::kScratchBytes);
  FrameReader reader(kMaxPayload, scratch);
  CheckingHandler handler(model, reader, stop_after, cuts);
  test::FakeEndpoint endpoint;
  transport::EndpointCounters counters;
  std::span<const std::byte> rest = stream;
  while (!rest.empty()) {
    std::array<iovec, FrameReader::kBlocks> buffers{};
    const uint8_t cut = cuts.u8();
    // Some receives return no bytes first.
    if (cut % 2 != 0) static_cast<void>(reader.buffers(endpoint, handler, buffers));
    const unsigned used = reader.buffers(endpoint, handler, buffers);
    SLUICE_ASSERT(used >= 1 && used <= buffers.size());
    // As many bytes as a receive can return: a part, or all that fit.
    size_t room = cut == 0 ? rest.size() : std::min<size_t>(rest.size(), size_t{cut} * cut);
    size_t given = 0;
    for (unsigned i = 0; i < used; ++i) {
      SLUICE_ASSERT(buffers[i].iov_len > 0);
      const size_t n = std::min(room, buffers[i].iov_len);
      if (n > 0) std::memcpy(buffers[i].iov_base, rest.data() + given, n);
      given += n;
      room -= n;
    }
    model.append(rest.first(given));
    rest = rest.subspan(given);
    const Status status = reader.consume(given, endpoint, handler, counters);
    if (handler.stopped()) return;
    const auto step = model.next();
    if (!status.ok()) {
      const bool refused = status == Status(Errc::kBadSession);
      SLUICE_ASSERT(refused ||
                    (step.kind == StreamModel::Step::Kind::kViolation && step.violation == status.code()));
      return;
    }
    SLUICE_ASSERT(step.kind == StreamModel::Step::Kind::kNothing);
    SLUICE_ASSERT(reader.within_frame() == model.within_frame());
  }
}

}  // namespace sluice::fuzz
