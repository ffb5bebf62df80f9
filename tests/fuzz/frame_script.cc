#include "tests/fuzz/frame_script.h"

#include <utility>

#include "core/crc32c.h"

namespace sluice::fuzz {
namespace {

void complete(FrameParts& parts) {
  parts.extensions.resize(parts.extensions.size() / 8 * 8);
  parts.header.length = static_cast<uint32_t>(parts.payload.size());
  parts.header.ext_len8 = static_cast<uint8_t>(parts.extensions.size() / 8);
  if ((parts.header.flags & wire::kFlagPayloadCrc) != 0) parts.header.payload_crc = crc32c(parts.payload);
}

Bytes bytes_of(const FrameParts& parts) {
  Bytes out(wire::kHeaderBytes);
  wire::encode_header(parts.header, parts.extensions, wire::HeaderBytes(out.data(), wire::kHeaderBytes));
  out.insert(out.end(), parts.extensions.begin(), parts.extensions.end());
  out.insert(out.end(), parts.payload.begin(), parts.payload.end());
  return out;
}

template <typename T>
void set(T& field, Input& in) {
  if constexpr (std::is_enum_v<T>) {
    field = static_cast<T>(in.take<std::underlying_type_t<T>>());
  } else {
    field = in.take<T>();
  }
}

// Alters the contents, before lengths and CRCs are computed.
void alter_contents(FrameParts& parts, unsigned alteration, Input& in) {
  wire::FrameHeader& h = parts.header;
  switch (alteration) {
    case 0: return set(h.version, in);
    case 1: return set(h.type, in);
    case 2: return set(h.flags, in);
    case 3: return set(h.scale_exponent, in);
    case 4: return set(h.view_version, in);
    case 5: return set(h.session, in);
    case 6: return set(h.view_hash, in);
    case 7: return set(h.slot, in);
    case 8: return set(h.kind, in);
    case 9: return set(h.encoding, in);
    case 10: return set(h.sequence, in);
    case 11: return set(h.chunk, in);
    case 12: return set(h.op_id, in);
    case 13: return set(h.wire_dtype, in);
    case 14: return set(h.acc_dtype, in);
    case 15: return set(h.result_dtype, in);
    case 16: return set(h.op, in);
    case 17: return set(h.fingerprint, in);
    case 18: parts.payload = in.exactly(in.take<uint16_t>() % 8192); return;
    case 19: parts.extensions = in.exactly(in.u8() % 12 * 8); return;
    case 20: h.flags ^= wire::kFlagPayloadCrc; return;
    case 21: h.sequence += in.u8() % 8; return;
    case 22: h.sequence -= in.u8() % 8; return;
    // A dtype with the right accumulator and result: the codec accepts it, but it may differ between ranks.
    case 23:
      h.wire_dtype = h.result_dtype = static_cast<wire::DType>(in.below(wire::kDTypeCount));
      h.acc_dtype = wire::accumulator_of(h.wire_dtype);
      return;
    default: return;
  }
}

// Alters fields so that they disagree with the contents.
void alter_lengths_and_crc(wire::FrameHeader& h, unsigned alteration, Input& in) {
  switch (alteration) {
    case 24: return set(h.length, in);
    case 25: h.length += in.u8(); return;
    case 26: return set(h.ext_len8, in);
    case 27: h.payload_crc ^= 1u << in.below(32); return;
    default: return;
  }
}

}  // namespace

FrameParts contribution_frame(uint32_t session, uint64_t random_bits) {
  FrameParts parts;
  wire::FrameHeader& h = parts.header;
  h.type = wire::FrameType::kContribution;
  h.flags = wire::kFlagPayloadCrc;
  h.session = session;
  h.kind = wire::Kind::kAllreduce;
  h.wire_dtype = h.result_dtype = static_cast<wire::DType>((random_bits >> 32) % wire::kDTypeCount);
  h.acc_dtype = wire::accumulator_of(h.wire_dtype);
  h.op = static_cast<wire::Op>((random_bits >> 40) % wire::kOpCount);
  if (!wire::is_supported(h.wire_dtype, h.op)) h.op = wire::Op::kSum;
  return parts;
}

void set_elements(FrameParts& parts, size_t count, uint64_t random_bits) {
  wire::FrameHeader& h = parts.header;
  h.fingerprint = wire::fingerprint(count, h.wire_dtype, h.op, h.kind);
  parts.payload.resize(count * wire::size_of(h.wire_dtype));
  h.length = static_cast<uint32_t>(parts.payload.size());
  for (std::byte& b : parts.payload) {
    random_bits = random_bits * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(random_bits >> 56);
  }
}

Bytes encode(FrameParts parts) {
  complete(parts);
  return bytes_of(parts);
}

Bytes encode_altered(FrameParts parts, Input& in) {
  constexpr unsigned kAlterations = 29;
  const unsigned count = 1 + in.u8() % 3;
  unsigned alteration[3] = {};
  for (unsigned i = 0; i < count; ++i) {
    alteration[i] = in.below(kAlterations);
    alter_contents(parts, alteration[i], in);
  }
  complete(parts);
  for (unsigned i = 0; i < count; ++i) alter_lengths_and_crc(parts.header, alteration[i], in);
  Bytes out = bytes_of(parts);
  for (unsigned i = 0; i < count; ++i) {
    if (alteration[i] == 28)
      out[in.take<uint16_t>() % out.size()] ^= static_cast<std::byte>(1u << in.below(8));
  }
  return out;
}

}  // namespace sluice::fuzz
