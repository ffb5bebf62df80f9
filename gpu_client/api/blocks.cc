// The conversions between f32 and blocks of include/sluice/sluice.h.
#include "gpu_client/include/sluice/sluice.h"
#include "wire/payload/block_codec.h"

namespace {

bool is_block_type(sluice_dtype dtype) noexcept {
  return dtype == SLUICE_MXFP8 || dtype == SLUICE_INT8_BLOCK;
}

}  // namespace

size_t sluice_block_count(size_t count) {
  return count / sluice::wire::kBlockValues + (count % sluice::wire::kBlockValues != 0 ? 1 : 0);
}

sluice_status sluice_encode_blocks(sluice_dtype dtype, const float* values, size_t count, void* blocks) {
  if (!is_block_type(dtype) || (count > 0 && (values == nullptr || blocks == nullptr)))
    return SLUICE_INVALID_ARGUMENT;
  sluice::wire::encode_blocks(static_cast<sluice::wire::DType>(dtype), values, count,
                              static_cast<std::byte*>(blocks));
  return SLUICE_OK;
}

sluice_status sluice_decode_blocks(sluice_dtype dtype, const void* blocks, size_t count, float* values) {
  if (!is_block_type(dtype) || (count > 0 && (values == nullptr || blocks == nullptr)))
    return SLUICE_INVALID_ARGUMENT;
  sluice::wire::decode_blocks(static_cast<sluice::wire::DType>(dtype), static_cast<const std::byte*>(blocks),
                              count, values);
  return SLUICE_OK;
}
