#include "store/versions/slot_header.h"

#include <atomic>
#include <cstring>
#include <string_view>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/text_encoding.h"
#include "core/units.h"
#include "store/model/model_spec.h"

namespace sluice::store {
namespace {

constexpr uint64_t kMagic = 0x3156454349554c53;  // "SLUICEV1"
constexpr uint32_t kFormat = 1;
constexpr size_t kPage = 4096;

constexpr size_t kStateAt = 8;
constexpr size_t kFormatAt = 16;
constexpr size_t kShardAt = 20;
constexpr size_t kElementsAt = 24;
constexpr size_t kArraysAt = 32;
constexpr size_t kMaxPushesAt = 36;
constexpr size_t kFingerprintAt = 40;
constexpr size_t kVersionAt = 72;
constexpr size_t kGenerationAt = 80;
constexpr size_t kStepsAt = 88;
constexpr size_t kPushCountAt = 96;
constexpr size_t kChecksumsAt = 100;
constexpr size_t kHeaderChecksumAt = 112;
constexpr size_t kPushesAt = 128;
constexpr size_t kPushBytes = 16;

uint32_t header_checksum(const std::byte* slot, uint32_t pushes) noexcept {
  const uint32_t fields = crc32c({slot + kFormatAt, kHeaderChecksumAt - kFormatAt});
  return crc32c({slot + kPushesAt, pushes * kPushBytes}, fields);
}

std::string differs(std::string_view field, uint64_t found, uint64_t expected) {
  return std::string(field) + " is " + std::to_string(found) + "; expected " + std::to_string(expected);
}

// What makes a valid header that of another shard.
std::string other_shape(const std::byte* slot, const ShardShape& shape) {
  wire::Digest found;
  std::memcpy(found.data(), slot + kFingerprintAt, found.size());
  if (found != shape.fingerprint) {
    return "the model's fingerprint is " + hex_text(found) + "; expected " + hex_text(shape.fingerprint);
  }
  const struct {
    const char* name;
    uint64_t found, expected;
  } fields[] = {
      {"the shard", load_le<uint32_t>(slot + kShardAt), shape.shard},
      {"the number of elements", load_le<uint64_t>(slot + kElementsAt), shape.elements},
      {"the number of arrays", load_le<uint32_t>(slot + kArraysAt), shape.arrays},
      {"the room for pushes", load_le<uint32_t>(slot + kMaxPushesAt), shape.max_pushes},
  };
  for (const auto& field : fields) {
    if (field.found != field.expected) return differs(field.name, field.found, field.expected);
  }
  return "";
}

}  // namespace

size_t ShardShape::content_at() const noexcept {
  return round_up(kPushesAt + size_t{max_pushes} * kPushBytes, kPage);
}

SlotState load_state(const std::byte* slot) noexcept {
  auto* const word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(slot + kStateAt));
  return static_cast<SlotState>(std::atomic_ref(*word).load(std::memory_order_acquire));
}

void store_state(std::byte* slot, SlotState state) noexcept {
  // After a state of "writing" no later store may pass it; before "prepared" no earlier one.
  auto* const word = reinterpret_cast<uint64_t*>(slot + kStateAt);
  std::atomic_ref(*word).store(static_cast<uint64_t>(state), std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void write_header(std::byte* slot, const ShardShape& shape, const VersionFacts& facts,
                  std::span<const PushIdentity> pushes) noexcept {
  store_le(slot, kMagic);
  store_le(slot + kFormatAt, kFormat);
  store_le(slot + kShardAt, shape.shard);
  store_le(slot + kElementsAt, shape.elements);
  store_le(slot + kArraysAt, shape.arrays);
  store_le(slot + kMaxPushesAt, shape.max_pushes);
  std::memcpy(slot + kFingerprintAt, shape.fingerprint.data(), shape.fingerprint.size());
  store_le(slot + kVersionAt, facts.version);
  store_le(slot + kGenerationAt, facts.generation);
  store_le(slot + kStepsAt, facts.steps);
  store_le(slot + kPushCountAt, static_cast<uint32_t>(pushes.size()));
  for (size_t a = 0; a < kMaxArrays; ++a) store_le(slot + kChecksumsAt + 4 * a, facts.checksums[a]);
  std::byte* p = slot + kPushesAt;
  for (const PushIdentity push : pushes) {
    store_le(p, push.worker);
    store_le(p + 8, push.number);
    p += kPushBytes;
  }
  store_le(slot + kHeaderChecksumAt, header_checksum(slot, static_cast<uint32_t>(pushes.size())));
}

Result<void> check_format(const std::byte* slot) {
  if (load_le<uint64_t>(slot) != kMagic)
    return fail(Errc::kMismatch, "the first 8 bytes are not \"SLUICEV1\", so it is no file of a version");
  if (const auto format = load_le<uint32_t>(slot + kFormatAt); format != kFormat)
    return fail(Errc::kMismatch, differs("the format", format, kFormat));
  return {};
}

Result<VersionFacts> read_header(const std::byte* slot, const ShardShape& shape) {
  const uint32_t pushes = push_count(slot);
  const auto stored = load_le<uint32_t>(slot + kHeaderChecksumAt);
  // A count that is too large is damage or another shape; the checksum of the allowed part decides.
  const uint32_t computed = header_checksum(slot, pushes <= shape.max_pushes ? pushes : 0);
  std::string other = other_shape(slot, shape);
  if (stored == computed && !other.empty()) return fail(Errc::kMismatch, std::move(other));
  if (stored != computed) return invalid(differs("the checksum of the header", computed, stored));
  if (pushes > shape.max_pushes) return invalid(differs("the number of pushes", pushes, shape.max_pushes));
  VersionFacts facts{.version = load_le<uint64_t>(slot + kVersionAt),
                     .generation = load_le<uint64_t>(slot + kGenerationAt),
                     .steps = load_le<uint64_t>(slot + kStepsAt)};
  for (size_t a = 0; a < kMaxArrays; ++a) facts.checksums[a] = load_le<uint32_t>(slot + kChecksumsAt + 4 * a);
  return facts;
}

uint32_t push_count(const std::byte* slot) noexcept {
  return load_le<uint32_t>(slot + kPushCountAt);
}

PushIdentity push_at(const std::byte* slot, size_t index) noexcept {
  const std::byte* const p = slot + kPushesAt + index * kPushBytes;
  return {load_le<uint64_t>(p), load_le<uint64_t>(p + 8)};
}

}  // namespace sluice::store
