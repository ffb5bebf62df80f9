#include "store/snapshot/write_snapshot.h"

#include <algorithm>
#include <vector>

#include "config/output_file.h"
#include "core/crc32c.h"
#include "core/text_encoding.h"
#include "core/units.h"
#include "store/snapshot/half_floats.h"
#include "store/snapshot/safetensors_header.h"

namespace sluice::store {
namespace {

// An array of a tensor in the order of the file.
struct Part {
  size_t array;
  size_t tensor;
  wire::DType dtype;
};

std::vector<Part> parts_of(const ModelSpec& spec, SnapshotContent content) {
  const bool resumable = content == SnapshotContent::kResumable;
  std::vector<Part> parts;
  for (size_t array = 0; array < (resumable ? array_count(spec.rule.kind) : 1); ++array) {
    for (size_t t = 0; t < spec.tensors.size(); ++t)
      parts.push_back({array, t, resumable ? wire::DType::kF32 : spec.tensors[t].dtype});
  }
  // Types with larger elements first, so that all tensors are aligned.
  std::ranges::stable_sort(parts, std::ranges::greater(), [](const Part& p) { return size_of(p.dtype); });
  return parts;
}

SafetensorsHeader header_of(const ModelSpec& spec, const SnapshotFacts& facts, const std::vector<Part>& parts,
                            SnapshotContent content) {
  SafetensorsHeader header;
  uint64_t position = 0;
  for (const Part& part : parts) {
    const uint64_t end = position + spec.tensors[part.tensor].elements() * size_of(part.dtype);
    header.entries.push_back({.name = snapshot_tensor_name(spec, part.array, part.tensor),
                              .dtype = safetensors_dtype(part.dtype),
                              .shape = spec.tensors[part.tensor].shape,
                              .begin = position,
                              .end = end});
    position = end;
  }
  header.metadata = {{"format", "pt"},
                     {kSnapshotModel, spec.name},
                     {kSnapshotFingerprint, hex_text(fingerprint(spec))},
                     {kSnapshotVersion, std::to_string(facts.version)},
                     {kSnapshotSteps, std::to_string(facts.steps)},
                     {kSnapshotContent, content == SnapshotContent::kWeights ? "weights" : "resumable"},
                     {kSnapshotChecksum, hex_digits(0, 8)}};
  return header;
}

constexpr size_t kBufferElements = 256 * kKiB;

}  // namespace

std::string snapshot_tensor_name(const ModelSpec& spec, size_t array, size_t tensor) {
  if (array == 0) return spec.tensors[tensor].name;
  return "sluice." + std::string(array_name(spec.rule.kind, array)) + ':' + spec.tensors[tensor].name;
}

std::string safetensors_dtype(wire::DType dtype) {
  return dtype == wire::DType::kF32 ? "F32" : dtype == wire::DType::kF16 ? "F16" : "BF16";
}

Result<void> write_snapshot(const std::string& path, const ModelSpec& spec, const ModelLayout& layout,
                            const SnapshotFacts& facts, std::span<const ConstShardArrays> shards,
                            SnapshotContent content) {
  const std::vector<Part> parts = parts_of(spec, content);
  std::string header = safetensors_header_text(header_of(spec, facts, parts, content));
  if (header.size() - 8 > kMaxSafetensorsHeader) {
    return invalid("the header of a snapshot of model \"" + spec.name + "\" has " +
                   std::to_string(header.size() - 8) + " bytes; safetensors allows " +
                   std::to_string(kMaxSafetensorsHeader));
  }
  const auto visit_data = [&](const auto& use) -> Result<void> {
    std::vector<std::byte> buffer(kBufferElements * sizeof(float));
    for (const Part& part : parts) {
      for (const ShardPiece& piece : layout.pieces_of_tensor(static_cast<uint32_t>(part.tensor))) {
        const float* values = shards[piece.shard][part.array] + piece.first_in_shard;
        for (uint64_t left = piece.count; left > 0;) {
          const size_t n = std::min<uint64_t>(left, kBufferElements);
          store_elements(part.dtype, {values, n}, buffer.data());
          SLUICE_RETURN_IF_ERROR(use(std::span<const std::byte>(buffer.data(), n * size_of(part.dtype))));
          values += n;
          left -= n;
        }
      }
    }
    return {};
  };
  uint32_t checksum = 0;
  const auto add_to_checksum = [&](std::span<const std::byte> bytes) -> Result<void> {
    checksum = crc32c(bytes, checksum);
    return {};
  };
  // The name of a tensor has no quote, so this text is the metadata's.
  const std::string key = '"' + std::string(kSnapshotChecksum) + "\":\"";
  const size_t checksum_position = header.find(key) + key.size();
  SLUICE_ASSIGN_OR_RETURN(file, config::OutputFile::open(path));
  // A pipe cannot be overwritten, so the checksum needs a pass of its own.
  if (!file.is_seekable()) {
    SLUICE_RETURN_IF_ERROR(visit_data(add_to_checksum));
    header.replace(checksum_position, 8, hex_digits(checksum, 8));
  }
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header))));
  checksum = 0;
  const auto write_data = [&](std::span<const std::byte> bytes) -> Result<void> {
    checksum = crc32c(bytes, checksum);
    return file.write(bytes);
  };
  SLUICE_RETURN_IF_ERROR(visit_data(write_data));
  if (file.is_seekable()) SLUICE_RETURN_IF_ERROR(file.overwrite(checksum_position, hex_digits(checksum, 8)));
  return file.finish();
}

}  // namespace sluice::store
