#include "tests/fuzz/frame_script.h"

#include <utility>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "tests/fuzz/payload_model.h"
#include "wire/extension.h"

namespace sluice::fuzz {
namespace {

// The end of splitmix64.
uint64_t hash(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Replaces what receivers refuse in int8-block.
void make_valid_blocks(Bytes& payload) {
  constexpr size_t kBlockBytes = 264;
  for (size_t at = 0; at < payload.size(); at += kBlockBytes) {
    for (std::byte* scale : {&payload[at], &payload[at + 4]}) {
      const auto random = load_le<uint32_t>(scale);
      const uint32_t normal = (1 + (random >> 24) % 254) << 23 | (random & 0x007fff00);
      store_le(scale, random % 8 == 0 ? 0 : random % 16 == 1 ? 0x7fc00000 : normal);
    }
    for (size_t i = at + 8; i < at + kBlockBytes; ++i)
      if (payload[i] == std::byte{0x80}) payload[i] = std::byte{0x81};
  }
}

template <typename Extension>
Bytes extension_of(const Extension& extension) {
  Bytes out(wire::kSmallExtensionBytes);
  wire::encode_extension(extension, wire::SmallExtension(out));
  return out;
}

void remove_last_extension(FrameParts& parts) {
  parts.extensions.resize(parts.extensions.size() -
                          std::min(parts.extensions.size(), wire::kSmallExtensionBytes));
}

// Undoes make_sparse(), if the frame is intact.
void make_plain(FrameParts& parts) {
  if (std::exchange(parts.header.encoding, wire::Encoding::kPlain) != wire::Encoding::kSparse) return;
  const auto expanded = wire::find_expanded(parts.extensions);
  if (!expanded || expanded->bytes > wire::kMaxPayload) return;
  auto payload = expand_payload(parts.payload, expanded->bytes, parts.header.wire_dtype);
  if (payload) parts.payload = std::move(*payload);
  remove_last_extension(parts);
}

// Turns an allreduce into a kind whose chunks have an owner.
void add_owner(FrameParts& parts, Input& in) {
  const uint8_t choice = in.u8();
  const bool empty = (choice & 16) != 0;
  const bool sparse = parts.header.encoding == wire::Encoding::kSparse;
  make_plain(parts);
  parts.header.kind = static_cast<wire::Kind>(2 + choice % 4);
  const auto chunk_bytes = static_cast<uint32_t>(parts.payload.size());
  const Bytes owner =
      extension_of(wire::ChunkOwner{.owner = uint32_t{choice} / 4 % 4, .chunk_bytes = chunk_bytes});
  parts.extensions.insert(parts.extensions.end(), owner.begin(), owner.end());
  if (empty) parts.payload.clear();
  if (sparse && !empty) make_sparse(parts);
}

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

// Alters the encoding, the payload and what describes them.
void alter_payload(FrameParts& parts, unsigned alteration, Input& in) {
  wire::FrameHeader& h = parts.header;
  if (!wire::is_valid(h.wire_dtype)) return;
  switch (alteration) {
    case 29: {  // zeroes every block that the mask selects, and removes it
      make_plain(parts);
      const size_t block = wire::is_block(h.wire_dtype) ? 264 : 64 * wire::size_of(h.wire_dtype);
      const uint8_t mask = in.u8();
      for (size_t i = 0; i < parts.payload.size(); ++i)
        if ((mask >> i / block % 8 & 1) != 0) parts.payload[i] = std::byte{0};
      return make_sparse(parts);
    }
    case 30: {  // a bit of the bitmap, counted from the end
      const uint8_t bit = in.u8();
      if (bit / 8 < parts.payload.size())
        parts.payload[parts.payload.size() - 1 - bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      return;
    }
    case 31: return remove_last_extension(parts);  // EXPANDED, if the payload is sparse
    case 32:
      remove_last_extension(parts);
      std::ranges::copy(extension_of(wire::Expanded{.bytes = in.take<uint32_t>()}),
                        std::back_inserter(parts.extensions));
      return;
    case 33: {  // EXPANDED differs a little
      const auto expanded = wire::find_expanded(parts.extensions);
      if (!expanded) return;
      const auto bytes =
          static_cast<uint32_t>(expanded->bytes + (in.u8() - 128) * wire::size_of(h.wire_dtype));
      remove_last_extension(parts);
      std::ranges::copy(extension_of(wire::Expanded{.bytes = bytes}), std::back_inserter(parts.extensions));
      return;
    }
    case 34: h.encoding = static_cast<wire::Encoding>(in.u8() % 3); return;
    case 35:
      if (const auto at = in.take<uint16_t>(); !parts.payload.empty())
        parts.payload[at % parts.payload.size()] = static_cast<std::byte>(in.u8());
      return;
    case 36:
      parts.payload.resize(std::max<long>(0, static_cast<long>(parts.payload.size()) + in.u8() - 128));
      return;
    case 37: h.flags ^= wire::kFlagAcceptsSparse; return;
    case 38: return add_owner(parts, in);
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
  if ((random_bits >> 36) % 4 != 0) h.flags |= wire::kFlagAcceptsSparse;
  return parts;
}

void set_elements(FrameParts& parts, size_t count, uint64_t random_bits, uint32_t rank) {
  wire::FrameHeader& h = parts.header;
  h.fingerprint = wire::fingerprint(count, h.wire_dtype, h.op, h.kind);
  const size_t size = wire::size_of(h.wire_dtype);
  if (hash(random_bits + rank) % 16 == 0) h.flags &= static_cast<uint16_t>(~wire::kFlagAcceptsSparse);
  parts.payload.resize(count * size);
  h.length = static_cast<uint32_t>(parts.payload.size());
  uint64_t state = random_bits ^ rank;
  for (std::byte& b : parts.payload) {
    state = state * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(state >> 56);
  }
  if (h.wire_dtype == wire::DType::kInt8Block) make_valid_blocks(parts.payload);
  const uint64_t zeros = hash(random_bits);
  const size_t block = wire::is_block(h.wire_dtype) ? size : 64 * size;
  for (size_t at = 0; at < parts.payload.size(); at += block) {
    // No zeros in half of the chunks; the same on all ranks in 5 of 16; other ones in 2; nothing else in 1.
    const uint64_t mode = zeros % 16;
    const bool zero = mode == 15 || (mode >= 8 && hash(zeros + at + (mode < 10 ? rank : 0)) % 4 != 0);
    const size_t end = std::min(parts.payload.size(), at + block);
    if (zero) std::fill(&parts.payload[at], parts.payload.data() + end, std::byte{0});
  }
}

size_t most_elements(wire::DType t, size_t slot_bytes) {
  return std::min(slot_bytes / wire::size_of(t), 2 * slot_bytes / wire::accumulated_size_of(t));
}

void make_sparse(FrameParts& parts) {
  if (!wire::is_valid(parts.header.wire_dtype)) return;
  const Bytes expanded = extension_of(wire::Expanded{.bytes = static_cast<uint32_t>(parts.payload.size())});
  parts.extensions.insert(parts.extensions.end(), expanded.begin(), expanded.end());
  parts.payload = sparse_payload(parts.payload, parts.header.wire_dtype);
  parts.header.encoding = wire::Encoding::kSparse;
}

void make_sparse_if_shorter(FrameParts& parts) {
  if (sparse_payload(parts.payload, parts.header.wire_dtype).size() < parts.payload.size())
    make_sparse(parts);
}

Bytes encode(FrameParts parts) {
  complete(parts);
  return bytes_of(parts);
}

Bytes encode_altered(FrameParts parts, Input& in) {
  constexpr unsigned kAlterations = 39;
  const unsigned count = 1 + in.u8() % 3;
  unsigned alteration[3] = {};
  for (unsigned i = 0; i < count; ++i) {
    alteration[i] = in.below(kAlterations);
    alter_contents(parts, alteration[i], in);
    alter_payload(parts, alteration[i], in);
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
