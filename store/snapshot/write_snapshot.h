// Writes one version of a model as a safetensors file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/result.h"
#include "store/model/model_layout.h"
#include "store/model/model_spec.h"
#include "store/update/update_step.h"

namespace sluice::store {

// kWeights: the parameters in the types of the specification, for programs that use the model. kResumable:
// the parameters in f32 under the same names, and the state of the rule, for the arrays of array_name(), as
// "sluice.ARRAY:TENSOR". The steps after a restore have the same bits as without it.
enum class SnapshotContent : uint8_t { kWeights, kResumable };

struct SnapshotFacts {
  uint64_t version = 0;
  uint64_t steps = 0;
};

// Keys of the file's metadata. "format" is "pt", which the transformers library requires.
inline constexpr const char* kSnapshotModel = "sluice.model";
inline constexpr const char* kSnapshotFingerprint = "sluice.fingerprint";
inline constexpr const char* kSnapshotVersion = "sluice.version";
inline constexpr const char* kSnapshotSteps = "sluice.steps";
inline constexpr const char* kSnapshotContent = "sluice.content";  // "weights" or "resumable"
inline constexpr const char* kSnapshotChecksum = "sluice.crc32c";  // of the data, 8 hex digits

// `shards` holds the arrays of all shards of one version, which stay unchanged during the call. The file
// appears under `path` when it is complete and on the disk: config/output_file.h tells how. On an error
// `path` is as before, except where it can only be written in place.
[[nodiscard]] Result<void> write_snapshot(const std::string& path, const ModelSpec& spec,
                                          const ModelLayout& layout, const SnapshotFacts& facts,
                                          std::span<const ConstShardArrays> shards, SnapshotContent content);

// "sluice.ARRAY:TENSOR", or "TENSOR" for the parameters.
[[nodiscard]] std::string snapshot_tensor_name(const ModelSpec& spec, size_t array, size_t tensor);
// "F32", "F16" or "BF16".
[[nodiscard]] std::string safetensors_dtype(wire::DType dtype);

}  // namespace sluice::store
