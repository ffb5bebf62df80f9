// The programs that instruction_test.py runs under callgrind. Each warms up, then does its work inside
// counted_region(), which is all that is counted: allocations of the rig, the peers' side and the dynamic
// linker's first calls are not. One thread, no socket and no clock, so the count is the same on every run.
// Prints how many units were counted and what the dispatch chose.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "core/assert.h"
#include "core/crc32c.h"
#include "reducer/kernels/fold.h"
#include "tests/support/lane_rig.h"
#include "tests/unit/gpu_client/fake_reducer.h"
#include "wire/extension.h"

// callgrind starts and stops counting where this is entered and left, by name; it does not nest.
extern "C" [[gnu::noinline]] void counted_region(const std::function<void()>& work) {
  work();
}

namespace sluice::test {
namespace {

// Chunks of 64 bytes: contributions in, the smallest fold, results out, over inproc.
uint64_t lane() {
  const uint32_t ranks = 4, slots = 8;
  const std::vector<float> values(16, 1.0f);
  LaneRig rig(ranks, slots);
  rig.commit_all();
  uint64_t sequence = 0;
  const auto window = [&](bool counts) {
    const auto turns = [&] {
      while (rig.lane->do_work(rig.now) != 0) {
      }
    };
    for (uint32_t i = 0; i < slots; ++i, ++sequence) {
      for (uint32_t r = 0; r < ranks; ++r) SLUICE_ASSERT(rig.contribute(r, sequence, values).ok());
    }
    if (counts) {
      counted_region(turns);
    } else {
      turns();
    }
    for (const auto& far : rig.far) {
      while (far->poll(rig.now, kMiB) != 0) {
      }
    }
    for (auto& rank : rig.ranks) {
      SLUICE_ASSERT(rank->arrived.size() == slots);
      rank->arrived.clear();
    }
  };
  for (int i = 0; i < 8; ++i) window(false);
  const uint64_t before = rig.lane->counters().chunks.get();
  for (int i = 0; i < 64; ++i) window(true);
  return rig.lane->counters().chunks.get() - before;
}

// Chunks of 64 bytes at a worker: cut, put, result in, place filled, over inproc.
uint64_t worker() {
  engine::test::Rig rig({.links = 2, .slots = 8, .slot_bytes = 64});
  std::vector<std::byte> data(16'384);
  uint64_t chunks = 0;
  const auto operation = [&](bool counts) {
    const auto turns = [&] {
      while (rig.exchange->put_chunks(SIZE_MAX) > 0 || rig.context->poll(rig.now, SIZE_MAX) > 0) {
      }
    };
    const uint32_t index = rig.start(data.data(), data.data(), data.size());
    while (!rig.ended(index)) {
      if (counts) {
        counted_region(turns);
      } else {
        turns();
      }
      while (rig.far_context->poll(rig.now, SIZE_MAX) > 0) {
      }
      for (auto& far : rig.lanes) {
        for (; !far.waiting.empty(); ++chunks) far.answer();
      }
    }
    rig.table.release(index);
  };
  operation(false);
  chunks = 0;
  for (int i = 0; i < 4; ++i) operation(true);
  return chunks;
}

// A header with a small extension: encoded, decoded, checked. The checksum of a payload is not in it.
uint64_t frame() {
  std::array<std::byte, wire::kSmallExtensionBytes> extension;
  wire::encode_extension(wire::OpInfo{.count = 1000}, extension);
  std::array<std::byte, wire::kHeaderBytes> bytes;
  const uint64_t frames = 2000;
  uint64_t good = 0;
  const auto code = [&] {
    for (uint64_t i = 0; i < frames; ++i) {
      wire::FrameHeader h;
      h.type = wire::FrameType::kContribution;
      h.ext_len8 = wire::kSmallExtensionBytes / 8;
      h.kind = wire::Kind::kAllreduce;
      h.wire_dtype = h.acc_dtype = h.result_dtype = wire::DType::kF32;
      h.length = 4096;
      h.sequence = h.chunk = i;
      wire::encode_header(h, extension, bytes);
      wire::FrameHeader read;
      if (wire::decode_header(bytes, read).ok() && wire::verify_header(bytes, extension).ok()) ++good;
    }
  };
  code();
  good = 0;
  counted_region(code);
  return good;
}

constexpr size_t kFoldBytes = 64 * kKiB;

// KiB of input folded by one call after another, eight sources.
uint64_t fold(wire::DType dtype) {
  const size_t n = kernels::kGroup;
  const uint64_t folds = 8;
  std::vector<std::byte> in(n * kFoldBytes), out(kFoldBytes);
  std::vector<const std::byte*> sources;
  for (size_t i = 0; i < n; ++i) sources.push_back(in.data() + i * kFoldBytes);
  const kernels::FoldFunction function = kernels::find_fold(dtype, wire::Op::kSum, kernels::Stage::kWhole);
  const auto work = [&] {
    for (uint64_t i = 0; i < folds; ++i) function(sources, kFoldBytes / wire::size_of(dtype), 1, out.data());
  };
  work();
  counted_region(work);
  return folds * n * kFoldBytes / kKiB;
}

// KiB of payload checked.
uint64_t checksum() {
  const std::vector<std::byte> data(256 * kKiB);
  uint32_t crc = 0;
  const auto work = [&] { crc = crc32c(data, crc); };
  work();
  counted_region(work);
  SLUICE_ASSERT(crc != 0);
  return data.size() / kKiB;
}

uint64_t run(const char* work) {
  if (std::strcmp(work, "lane") == 0) return lane();
  if (std::strcmp(work, "worker") == 0) return worker();
  if (std::strcmp(work, "frame") == 0) return frame();
  if (std::strcmp(work, "fold-f32") == 0) return fold(wire::DType::kF32);
  if (std::strcmp(work, "fold-bf16") == 0) return fold(wire::DType::kBf16);
  if (std::strcmp(work, "fold-f16") == 0) return fold(wire::DType::kF16);
  if (std::strcmp(work, "checksum") == 0) return checksum();
  return 0;
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const uint64_t units = sluice::test::run(argv[1]);
  std::printf("units %llu fold %s crc %s\n", static_cast<unsigned long long>(units),
              sluice::kernels::fold_targets().front().name, sluice::crc32c_chosen().name);
  return units == 0 || ::testing::Test::HasFailure() ? 1 : 0;
}
