// The programs that instruction_test.py runs under callgrind.
//
// Each program warms up and then works inside counted_region(). Only that is counted, without the allocations
// of the test bed, the peers' side and the dynamic linker's first calls. There is one thread, no socket and
// no clock, so the count is the same in every run. Prints the number of units and the choices of the
// dispatch.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "core/assert.h"
#include "core/crc32c.h"
#include "reducer/kernels/fold.h"
#include "tests/support/lane_test_bed.h"
#include "tests/unit/gpu_client/scheduler_test_bed.h"
#include "wire/extension.h"

// callgrind counts between the entry and the exit of this function, by its name. It does not nest.
extern "C" [[gnu::noinline]] void counted_region(const std::function<void()>& work) {
  work();
}

namespace sluice::test {
namespace {

void run_region(bool counts, const std::function<void()>& work) {
  if (counts) return counted_region(work);
  work();
}

// Chunks of 64 bytes over inproc at a lane: contributions in, the smallest fold, results out.
uint64_t lane() {
  const uint32_t ranks = 4, slots = 8;
  const std::vector<float> values(16, 1.0f);
  LaneTestBed test_bed(ranks, slots);
  test_bed.commit_all();
  uint64_t sequence = 0;
  const auto window = [&](bool counts) {
    const auto run_turns = [&] {
      while (test_bed.lane->do_work(test_bed.now) != 0) {
      }
    };
    for (uint32_t i = 0; i < slots; ++i, ++sequence) {
      for (uint32_t r = 0; r < ranks; ++r) SLUICE_ASSERT(test_bed.contribute(r, sequence, values).ok());
    }
    run_region(counts, run_turns);
    for (const auto& far : test_bed.far) {
      while (far->poll(test_bed.now, kMiB) != 0) {
      }
    }
    for (auto& rank : test_bed.ranks) {
      SLUICE_ASSERT(rank->arrived.size() == slots);
      rank->arrived.clear();
    }
  };
  for (int i = 0; i < 8; ++i) window(false);
  const uint64_t before = test_bed.lane->counters().chunks.get();
  for (int i = 0; i < 64; ++i) window(true);
  return test_bed.lane->counters().chunks.get() - before;
}

// Chunks of 64 bytes over inproc at a worker: contributions out, results in.
uint64_t worker() {
  engine::test::SchedulerTestBed test_bed({.lanes = 2, .slots = 8, .slot_bytes = 64});
  std::vector<std::byte> data(16'384);
  uint64_t chunks = 0;
  const auto operation = [&](bool counts) {
    const auto run_turns = [&] {
      while (test_bed.scheduler->put_chunks(SIZE_MAX) > 0 ||
             test_bed.context->poll(test_bed.now, SIZE_MAX) > 0) {
      }
    };
    const uint32_t index = test_bed.start(data.data(), data.data(), data.size());
    while (!test_bed.ended(index)) {
      run_region(counts, run_turns);
      while (test_bed.far_context->poll(test_bed.now, SIZE_MAX) > 0) {
      }
      for (auto& far : test_bed.lanes) {
        for (; !far.waiting.empty(); ++chunks) far.answer();
      }
    }
    test_bed.table.release(index);
  };
  operation(false);
  chunks = 0;
  for (int i = 0; i < 4; ++i) operation(true);
  return chunks;
}

// A header with a small extension: encoded, decoded and verified, without a payload checksum.
uint64_t frame() {
  std::array<std::byte, wire::kSmallExtensionBytes> extension;
  wire::encode_extension(wire::OpInfo{.count = 1000}, extension);
  std::array<std::byte, wire::kHeaderBytes> bytes;
  const uint64_t frames = 2000;
  uint64_t valid = 0;
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
      if (wire::decode_header(bytes, read).ok() && wire::verify_header(bytes, extension).ok()) ++valid;
    }
  };
  code();
  valid = 0;
  counted_region(code);
  return valid;
}

constexpr size_t kFoldBytes = 64 * kKiB;

// Consecutive folds of eight sources; the unit is KiB of input.
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

// Payload checksums; the unit is KiB.
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
