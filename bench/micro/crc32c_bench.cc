// Measures the bytes per second of each CRC-32C implementation that this CPU supports, and of ISA-L if
// available. The sizes are the checked part of a frame header, a header with extensions, and small and large
// payloads. Offset 1 shows the effect of alignment.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "core/crc32c.h"
#ifdef SLUICE_HAVE_ISAL
#include <isa-l/crc.h>
#endif

namespace {

using sluice::Crc32cFunction;

#ifdef SLUICE_HAVE_ISAL
// ISA-L uses the raw state. Its signature has no const and an int for the size.
uint32_t isal(const std::byte* data, size_t size, uint32_t crc) noexcept {
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data));
  return ~crc32_iscsi(bytes, static_cast<int>(size), ~crc);
}
#endif

void checksum(benchmark::State& state, Crc32cFunction function) {
  const auto size = static_cast<size_t>(state.range(0));
  const auto offset = static_cast<size_t>(state.range(1));
  std::vector<std::byte> bytes(size + offset + 64, std::byte{0x5A});
  const std::byte* const aligned = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
  uint32_t crc = 0;
  for (auto _ : state) {
    crc = function(aligned + offset, size, crc);  // depends on the previous iteration, so latency counts
    benchmark::DoNotOptimize(crc);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(size));
}

void add(const std::string& name, Crc32cFunction function) {
  benchmark::RegisterBenchmark(("crc32c/" + name).c_str(), checksum, function)
      ->ArgNames({"bytes", "offset"})
      ->ArgsProduct({{60, 256, 1024, 16 << 10, 256 << 10}, {0, 1}});
}

const bool kRegistered = [] {
  for (const sluice::Crc32cTarget& target : sluice::crc32c_targets()) {
    if (target.function != nullptr) add(target.name, target.function);
  }
  add("chosen", [](const std::byte* data, size_t size, uint32_t crc) noexcept {
    return sluice::crc32c({data, size}, crc);
  });
#ifdef SLUICE_HAVE_ISAL
  add("isal", &isal);
#endif
  return true;
}();

}  // namespace
