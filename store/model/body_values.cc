#include "store/model/body_values.h"

#include "store/snapshot/half_floats.h"
#include "wire/payload/block_codec.h"

namespace sluice::store {

void encode_body(wire::DType t, std::span<const float> values, std::byte* out) noexcept {
  if (wire::is_block(t)) return wire::encode_blocks(t, values.data(), values.size(), out);
  store_elements(t, values, out);
}

Status decode_body(wire::DType t, const std::byte* bytes, std::span<float> values) noexcept {
  if (!wire::is_block(t)) {
    load_elements(t, bytes, values);
    return {};
  }
  if (!wire::are_valid_blocks(t, {bytes, body_bytes(t, values.size())})) return Errc::kBadField;
  wire::decode_blocks(t, bytes, values.size(), values.data());
  return {};
}

}  // namespace sluice::store
