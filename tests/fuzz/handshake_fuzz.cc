// Fuzzes the bodies of all messages and the computations of the handshake.
#include <algorithm>
#include <string>

#include "core/assert.h"
#include "tests/fuzz/input.h"
#include "tests/support/message_fields.h"
#include "wire/handshake.h"
#include "wire/messages.h"
#include "wire/view.h"

namespace sluice::fuzz {
namespace {

// An accepted body encodes to the same bytes again, except for fields of a later version that the message
// drops.
template <typename M>
void fuzz_body(std::span<const std::byte> bytes) {
  M message;
  const auto before = test::fields_of(message);
  const Status status = wire::decode_body(bytes, message);
  if (!status.ok()) {
    SLUICE_ASSERT(status == Status(Errc::kBadLength) || status == Status(Errc::kBadField));
    SLUICE_ASSERT(test::fields_of(message) == before);
    return;
  }
  const Bytes again = wire::encode_body(message);
  SLUICE_ASSERT(again.size() <= bytes.size());
  SLUICE_ASSERT(M::kMayGrow || again.size() == bytes.size());
  SLUICE_ASSERT(std::ranges::equal(again, bytes.first(again.size())));
  if constexpr (requires { message.trailing; }) SLUICE_ASSERT(again.size() == bytes.size());
  if (again.size() > wire::kMaxControlPayload) return;  // too long for a control frame
  const Bytes frame = wire::encode_message(message, 7);
  wire::FrameHeader h;
  const wire::ConstHeaderBytes raw(frame.data(), wire::kHeaderBytes);
  SLUICE_ASSERT(wire::decode_header(raw, h).ok() && wire::verify_header(raw, {}).ok());
  SLUICE_ASSERT(h.type == M::kType && h.length == again.size());
}

using BodyFuzzer = void (*)(std::span<const std::byte>);
constexpr BodyFuzzer kBodies[] = {
    fuzz_body<wire::Hello>,        fuzz_body<wire::Welcome>,      fuzz_body<wire::Join>,
    fuzz_body<wire::Joined>,       fuzz_body<wire::Attach>,       fuzz_body<wire::Attached>,
    fuzz_body<wire::Refused>,      fuzz_body<wire::Pair>,         fuzz_body<wire::Paired>,
    fuzz_body<wire::Vote>,         fuzz_body<wire::Verdict>,      fuzz_body<wire::Commit>,
    fuzz_body<wire::Heartbeat>,    fuzz_body<wire::Leave>,        fuzz_body<wire::LeaveAck>,
    fuzz_body<wire::Abort>,        fuzz_body<wire::StatusQuery>,  fuzz_body<wire::StatusReply>,
    fuzz_body<wire::VerdictQuery>, fuzz_body<wire::Resume>,       fuzz_body<wire::ResumeAck>,
    fuzz_body<wire::Suspect>,      fuzz_body<wire::ViewQuery>,    fuzz_body<wire::ViewAnswer>,
    fuzz_body<wire::ViewCommit>,   fuzz_body<wire::DrainNotice>,  fuzz_body<wire::ViewKnown>,
    fuzz_body<wire::Stream>,       fuzz_body<wire::StreamAnswer>, fuzz_body<wire::StreamOffer>,
    fuzz_body<wire::RateChanges>,  fuzz_body<wire::Gather>,       fuzz_body<wire::Gathered>,
};

void versions(Input& in) {
  const uint8_t min = in.u8();
  const uint8_t max = in.u8();
  const auto common = wire::common_version(min, max);
  const bool overlap = min <= max && min <= wire::kVersionMax && max >= wire::kVersionMin;
  SLUICE_ASSERT(common.has_value() == overlap);
  SLUICE_ASSERT(!common || (*common >= min && *common <= max && *common >= wire::kVersionMin &&
                            *common <= wire::kVersionMax));
  SLUICE_ASSERT(!wire::version_range(min, max).empty());
}

// Both sides compute the same proof from the bodies as sent.
void proofs(Input& in) {
  const size_t hello_bytes = in.below(512);
  const auto hello_body = in.at_most(hello_bytes);
  const size_t welcome_bytes = in.below(512);
  const auto welcome_body = in.at_most(welcome_bytes);
  wire::Hello hello;
  wire::Welcome welcome;
  if (!wire::decode_body(hello_body, hello).ok() || !wire::decode_body(welcome_body, welcome).ok()) return;
  const wire::Digest token = wire::job_token(in.at_most(in.u8()), hello.job);
  const wire::Mac server = wire::server_proof(token, hello, welcome);
  const auto view_hash = in.take<uint64_t>();
  const wire::Mac client = wire::client_proof(token, hello, welcome, view_hash);
  SLUICE_ASSERT(!wire::equal_digests(server, client));
  Bytes as_sent(welcome_body.begin(), welcome_body.end());
  std::fill_n(as_sent.begin() + 56, 32, std::byte{0});  // the mac
  Bytes signed_bytes;
  for (const char c : std::string_view("sluice server\0", 14))
    signed_bytes.push_back(static_cast<std::byte>(c));
  signed_bytes.insert(signed_bytes.end(), hello_body.begin(), hello_body.end());
  signed_bytes.insert(signed_bytes.end(), as_sent.begin(), as_sent.end());
  SLUICE_ASSERT(server == wire::hmac_sha256(std::as_bytes(std::span(token)), signed_bytes));
  wire::Hello identified = hello;
  identified.key_id = wire::key_id(token, hello.nonce);
  SLUICE_ASSERT(!wire::equal_digests(server, wire::server_proof(token, identified, welcome)) ||
                hello.key_id == identified.key_id);
}

// Turns a view into one with co-located reducers at some ranks.
void add_rates(Input& in, wire::View& view) {
  const uint32_t ranks = 1 + in.below(12);
  const auto rate = [&] {
    return wire::kMinLinkRate + in.take<uint64_t>() % (wire::kMaxLinkRate - wire::kMinLinkRate + 1);
  };
  for (uint32_t rank = 0; rank < ranks; ++rank) view.worker_rates.push_back(rate());
  for (wire::ViewReducer& r : view.reducers)
    if (in.below(4) != 0) r.rate = rate();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (in.below(2) == 0) continue;
    view.reducers.push_back(
        {.id = in.take<uint64_t>(), .lanes = 1, .alive = in.below(4) != 0, .host_rank = rank});
  }
}

// Views with any values that WELCOME allows.
void views(Input& in) {
  wire::View view;
  view.version = in.take<uint16_t>();
  const uint32_t count = 1 + in.below(12);
  size_t lanes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    view.reducers.push_back({.id = in.take<uint64_t>(),
                             .lanes = static_cast<uint16_t>(1 + in.below(wire::kMaxLanes)),
                             .weight = static_cast<uint16_t>(1 + in.below(8)),
                             .alive = in.below(4) != 0});
  }
  view.reducers[in.below(count)].alive = true;
  if (in.below(2) == 1) add_rates(in, view);
  for (const wire::ViewReducer& r : view.reducers) lanes += r.lanes;
  const auto table = wire::placement_table(view);
  SLUICE_ASSERT(!table.empty() && table.size() <= wire::kMaxPlacement);
  for (const uint32_t lane : table) {
    SLUICE_ASSERT(lane < lanes);
    size_t r = 0;
    for (size_t rest = lane; rest >= view.reducers[r].lanes; ++r) rest -= view.reducers[r].lanes;
    SLUICE_ASSERT(view.reducers[r].alive);
  }
  SLUICE_ASSERT(wire::view_hash(view) == wire::view_hash(view));
  const uint32_t slot = 4096 + 64 * in.below(60000);
  const auto dtype = static_cast<wire::DType>(in.below(wire::kDTypeCount));
  const uint32_t chunk = wire::chunk_bytes(in.take<uint64_t>() >> in.below(64), static_cast<uint32_t>(lanes),
                                           {.slot_bytes = slot}, dtype);
  SLUICE_ASSERT(chunk > 0 && chunk <= slot && chunk % wire::size_of(dtype) == 0);
  SLUICE_ASSERT(wire::slots_per_lane(in.take<uint32_t>(), slot, view.reducers[0].lanes) >= 2);
}

}  // namespace

void fuzz_one(Input in) {
  const uint32_t choice = in.below(std::size(kBodies) + 3);
  switch (choice) {
    case 0: return versions(in);
    case 1: return proofs(in);
    case 2: return views(in);
    default: return kBodies[choice - 3](in.at_most(in.left()));
  }
}

}  // namespace sluice::fuzz
