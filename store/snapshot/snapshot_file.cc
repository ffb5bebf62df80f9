#include "store/snapshot/snapshot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "config/printable_text.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/parse_number.h"
#include "core/text_encoding.h"
#include "core/units.h"
#include "store/snapshot/half_floats.h"

namespace sluice::store {
namespace {

constexpr size_t kBufferBytes = kMiB;

std::optional<wire::DType> parse_safetensors_dtype(std::string_view name) noexcept {
  if (name == "F32") return wire::DType::kF32;
  if (name == "F16") return wire::DType::kF16;
  if (name == "BF16") return wire::DType::kBf16;
  return std::nullopt;
}

// The value of a key of the metadata; an empty text if there is none.
std::string metadata(const SafetensorsHeader& header, const char* key) {
  const auto found = header.metadata.find(key);
  return found == header.metadata.end() ? "" : found->second;
}

Result<uint64_t> metadata_number(const SafetensorsHeader& header, const char* key) {
  const std::string text = metadata(header, key);
  const auto number = parse_number<uint64_t>(text);
  if (!number)
    return invalid(std::string(key) + " is " + config::in_quotes(text) + "; expected a non-negative integer");
  return *number;
}

}  // namespace

SnapshotFile::Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

Result<SnapshotFile> SnapshotFile::open(const std::string& path, const ModelSpec& spec,
                                        SnapshotSource source) {
  SnapshotFile file;
  file.file_ = std::make_unique<Descriptor>();
  // Without O_NONBLOCK, open() of a pipe waits for a writer.
  file.file_->value = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (file.file_->value < 0 || ::fstat(file.file_->value, &info) != 0)
    return fail(Errc::kSystem, "cannot open " + path + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return invalid(path + ": not a regular file");
  file.file_bytes_ = static_cast<uint64_t>(info.st_size);

  const auto check = [&]() -> Result<void> {
    SLUICE_ASSIGN_OR_RETURN(header, file.read_header());
    if (source == SnapshotSource::kThisModel) SLUICE_RETURN_IF_ERROR(file.check_model(header, spec));
    SLUICE_RETURN_IF_ERROR(file.find_tensors(header, spec, source));
    return file.check_data(header);
  };
  if (auto checked = check(); !checked) return add_context(path, checked.error());
  return file;
}

Result<SafetensorsHeader> SnapshotFile::read_header() {
  std::array<std::byte, 8> bytes;
  if (file_bytes_ < bytes.size())
    return invalid("the file has " + std::to_string(file_bytes_) +
                   " bytes; a safetensors file has at least 8");
  SLUICE_RETURN_IF_ERROR(read_bytes(0, bytes));
  const auto length = load_le<uint64_t>(bytes.data());
  const uint64_t most = std::min<uint64_t>(file_bytes_ - bytes.size(), kMaxSafetensorsHeader);
  if (length > most) {
    return invalid("the header has " + std::to_string(length) + " bytes by its length; expected at most " +
                   std::to_string(most) + " in a file of " + std::to_string(file_bytes_) + " bytes");
  }
  std::string json(length, '\0');
  SLUICE_RETURN_IF_ERROR(read_bytes(bytes.size(), std::as_writable_bytes(std::span(json))));
  data_at_ = bytes.size() + length;
  return parse_safetensors_header(json, file_bytes_ - data_at_);
}

Result<void> SnapshotFile::check_model(const SafetensorsHeader& header, const ModelSpec& spec) {
  const std::string model = metadata(header, kSnapshotModel);
  const std::string found = metadata(header, kSnapshotFingerprint);
  const std::string expected = hex_text(fingerprint(spec));
  if (model.empty() && found.empty()) {
    return fail(Errc::kMismatch, std::string("the metadata has no ") + kSnapshotModel +
                                     "; expected a snapshot of model \"" + spec.name + '"');
  }
  if (model != spec.name || found != expected) {
    return fail(Errc::kMismatch, "the file is a snapshot of model " + config::in_quotes(model) +
                                     " with fingerprint " + config::printable(found) + "; expected model \"" +
                                     spec.name + "\" with fingerprint " + expected);
  }
  SLUICE_ASSIGN_OR_RETURN(version, metadata_number(header, kSnapshotVersion));
  SLUICE_ASSIGN_OR_RETURN(steps, metadata_number(header, kSnapshotSteps));
  facts_ = {.version = version, .steps = steps};
  const std::string content = metadata(header, kSnapshotContent);
  if (content != "weights" && content != "resumable") {
    return invalid(std::string(kSnapshotContent) + " is " + config::in_quotes(content) +
                   "; expected \"weights\" or \"resumable\"");
  }
  if (metadata(header, kSnapshotChecksum).empty())
    return invalid(std::string("the metadata has no ") + kSnapshotChecksum);
  if (content == "resumable") {
    arrays_ = array_count(spec.rule.kind);
    stateless_ = arrays_ == 1;
  }
  return {};
}

Result<void> SnapshotFile::find_tensors(const SafetensorsHeader& header, const ModelSpec& spec,
                                        SnapshotSource source) {
  std::unordered_map<std::string, std::pair<size_t, size_t>> expected;  // array and tensor by name
  for (size_t a = 0; a < arrays_; ++a) {
    places_[a].resize(spec.tensors.size());
    for (size_t t = 0; t < spec.tensors.size(); ++t) expected[snapshot_tensor_name(spec, a, t)] = {a, t};
  }
  const bool any_model = source == SnapshotSource::kAnyModel;
  for (const SafetensorsEntry& entry : header.entries) {
    const std::string name = "tensor " + config::in_quotes(entry.name);
    const auto found = expected.find(entry.name);
    if (found == expected.end()) {
      // The state of another model's rule.
      if (any_model && entry.name.starts_with("sluice.")) continue;
      return invalid(name + " is in the file, and not in model \"" + spec.name + '"');
    }
    const auto [array, index] = found->second;
    const TensorSpec& tensor = spec.tensors[index];
    if (entry.shape != tensor.shape) {
      return invalid(name + " has the shape " + config::printable(shape_text(entry.shape)) +
                     " in the file, and " + shape_text(tensor.shape) + " in model \"" + spec.name + '"');
    }
    const auto dtype = parse_safetensors_dtype(entry.dtype);
    if (!dtype || (!any_model && *dtype != wire::DType::kF32 && (*dtype != tensor.dtype || array != 0))) {
      return invalid(name + " has the dtype " + config::in_quotes(entry.dtype) + " in the file, and \"" +
                     safetensors_dtype(array == 0 ? tensor.dtype : wire::DType::kF32) + "\" in model \"" +
                     spec.name + '"');
    }
    places_[array][index] = {.dtype = *dtype, .position = data_at_ + entry.begin, .found = true};
  }
  for (size_t a = 0; a < arrays_; ++a) {
    for (size_t t = 0; t < spec.tensors.size(); ++t) {
      if (places_[a][t].found) continue;
      return invalid("tensor " + config::in_quotes(snapshot_tensor_name(spec, a, t)) + " is in model \"" +
                     spec.name + "\", and not in the file");
    }
  }
  return {};
}

Result<void> SnapshotFile::check_data(const SafetensorsHeader& header) const {
  const std::string expected = metadata(header, kSnapshotChecksum);
  if (expected.empty()) return {};
  std::vector<std::byte> buffer(kBufferBytes);
  uint32_t checksum = 0;
  for (uint64_t position = data_at_; position < file_bytes_;) {
    const std::span<std::byte> part(buffer.data(), std::min<uint64_t>(kBufferBytes, file_bytes_ - position));
    SLUICE_RETURN_IF_ERROR(read_bytes(position, part));
    checksum = crc32c(part, checksum);
    position += part.size();
  }
  if (hex_digits(checksum, 8) == expected) return {};
  return invalid("the checksum of the data is " + hex_digits(checksum, 8) + "; the metadata has " +
                 config::printable(expected));
}

Result<void> SnapshotFile::read_bytes(uint64_t position, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(file_->value, out.data(), out.size(), static_cast<off_t>(position));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(Errc::kSystem, std::string("cannot read: ") + std::strerror(errno));
    if (n == 0) return invalid("the file became shorter than " + std::to_string(file_bytes_) + " bytes");
    position += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<void> SnapshotFile::read(const ModelLayout& layout, uint32_t shard, size_t array,
                                std::span<float> out) const {
  std::ranges::fill(out.subspan(layout.used_elements(shard)), 0.0F);
  std::vector<std::byte> buffer(kBufferBytes);
  for (const ShardPiece& piece : layout.pieces_of_shard(shard)) {
    const Place& place = places_[array][piece.tensor];
    const size_t element = size_of(place.dtype);
    for (uint64_t done = 0; done < piece.count;) {
      const size_t n = std::min<uint64_t>(piece.count - done, kBufferBytes / element);
      const std::span<std::byte> bytes(buffer.data(), n * element);
      SLUICE_RETURN_IF_ERROR(read_bytes(place.position + (piece.first_in_tensor + done) * element, bytes));
      load_elements(place.dtype, bytes.data(), out.subspan(piece.first_in_shard + done, n));
      done += n;
    }
  }
  return {};
}

}  // namespace sluice::store
