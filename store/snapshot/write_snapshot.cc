#include "store/snapshot/write_snapshot.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/crc32c.h"
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

// Class NewFile writes PATH.new and renames it to PATH, or deletes it.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), temporary_(path + ".new") {}
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!renamed_) ::unlink(temporary_.c_str());
  }

  Result<void> create() {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return descriptor_ < 0 ? error("create") : Result<void>();
  }
  Result<void> write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return error("write");
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
  }
  Result<void> overwrite(size_t position, std::string_view text) {
    const ssize_t n = ::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(position));
    return n == static_cast<ssize_t>(text.size()) ? Result<void>() : error("write");
  }
  // The content is on the disk before the name, and the name before this returns.
  Result<void> finish() {
    if (::fsync(descriptor_) != 0) return error("write");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return error("rename");
    renamed_ = true;
    const size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return error("open the folder of");
    const bool synced = ::fsync(directory) == 0;
    auto result = synced ? Result<void>() : error("write the folder of");
    ::close(directory);
    return result;
  }

 private:
  Result<void> error(const char* action) const {
    return fail(Errc::kSystem,
                std::string("cannot ") + action + ' ' + temporary_ + ": " + std::strerror(errno));
  }

  const std::string& path_;
  std::string temporary_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

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
                     {kSnapshotChecksum, checksum_text(0)}};
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

std::string checksum_text(uint32_t checksum) {
  std::string text(8, '0');
  for (size_t i = 0; i < 8; ++i) text[i] = "0123456789abcdef"[checksum >> (28 - 4 * i) & 15];
  return text;
}

Result<void> write_snapshot(const std::string& path, const ModelSpec& spec, const ModelLayout& layout,
                            const SnapshotFacts& facts, std::span<const ConstShardArrays> shards,
                            SnapshotContent content) {
  const std::vector<Part> parts = parts_of(spec, content);
  const std::string header = safetensors_header_text(header_of(spec, facts, parts, content));
  if (header.size() - 8 > kMaxSafetensorsHeader) {
    return invalid("the header of a snapshot of model \"" + spec.name + "\" has " +
                   std::to_string(header.size() - 8) + " bytes; safetensors allows " +
                   std::to_string(kMaxSafetensorsHeader));
  }
  NewFile file(path);
  SLUICE_RETURN_IF_ERROR(file.create());
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header))));
  uint32_t checksum = 0;
  std::vector<std::byte> buffer(kBufferElements * sizeof(float));
  for (const Part& part : parts) {
    for (const ShardPiece& piece : layout.pieces_of_tensor(static_cast<uint32_t>(part.tensor))) {
      const float* values = shards[piece.shard][part.array] + piece.first_in_shard;
      for (uint64_t left = piece.count; left > 0;) {
        const size_t n = std::min<uint64_t>(left, kBufferElements);
        store_elements(part.dtype, {values, n}, buffer.data());
        const std::span<const std::byte> bytes(buffer.data(), n * size_of(part.dtype));
        checksum = crc32c(bytes, checksum);
        SLUICE_RETURN_IF_ERROR(file.write(bytes));
        values += n;
        left -= n;
      }
    }
  }
  // The name of a tensor has no quote, so this text is the metadata's.
  const std::string key = '"' + std::string(kSnapshotChecksum) + "\":\"";
  SLUICE_RETURN_IF_ERROR(file.overwrite(header.find(key) + key.size(), checksum_text(checksum)));
  return file.finish();
}

}  // namespace sluice::store
