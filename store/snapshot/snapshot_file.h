// Class SnapshotFile reads a model's arrays from a safetensors file, after it has checked the whole file.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "store/model/model_layout.h"
#include "store/model/model_spec.h"
#include "store/snapshot/safetensors_header.h"
#include "store/snapshot/write_snapshot.h"

namespace sluice::store {

// kThisModel: a snapshot of the model with this name and fingerprint. kAnyModel: parameters from any file
// whose tensors have the names and shapes of the model; facts() is 0.
enum class SnapshotSource : uint8_t { kThisModel, kAnyModel };

class SnapshotFile {
 public:
  // Errors name the file, what disagrees and both values: kSystem, kMismatch (another model), else
  // kInvalidArgument.
  [[nodiscard]] static Result<SnapshotFile> open(const std::string& path, const ModelSpec& spec,
                                                 SnapshotSource source);

  [[nodiscard]] const SnapshotFacts& facts() const noexcept { return facts_; }
  // Whether the file has the state of the rule. Otherwise only array 0 can be read.
  [[nodiscard]] bool resumable() const noexcept { return arrays_ > 1 || stateless_; }
  [[nodiscard]] size_t arrays() const noexcept { return arrays_; }

  // Reads one array of one shard; `out` has shard_elements(). The padding becomes 0. `layout` is that of the
  // model. Any thread.
  [[nodiscard]] Result<void> read(const ModelLayout& layout, uint32_t shard, size_t array,
                                  std::span<float> out) const;

 private:
  // Where the elements of an array of a tensor are.
  struct Place {
    wire::DType dtype = wire::DType::kF32;
    uint64_t position = 0;  // in the file
    bool found = false;
  };
  struct Descriptor {
    int value = -1;
    ~Descriptor();
  };

  SnapshotFile() = default;
  [[nodiscard]] Result<SafetensorsHeader> read_header();
  [[nodiscard]] Result<void> check_model(const SafetensorsHeader& header, const ModelSpec& spec);
  [[nodiscard]] Result<void> find_tensors(const SafetensorsHeader& header, const ModelSpec& spec,
                                          SnapshotSource source);
  [[nodiscard]] Result<void> check_data(const SafetensorsHeader& header) const;
  [[nodiscard]] Result<void> read_bytes(uint64_t position, std::span<std::byte> out) const;

  std::unique_ptr<Descriptor> file_;
  uint64_t data_at_ = 0;
  uint64_t file_bytes_ = 0;
  SnapshotFacts facts_;
  size_t arrays_ = 1;
  bool stateless_ = false;
  std::array<std::vector<Place>, kMaxArrays> places_;  // by array, then tensor
};

}  // namespace sluice::store
