// Measures what the black box costs: an event with and without a text, one of an operation (its time is
// known), by one and by several threads, and a whole file.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "blackbox/dump_file.h"
#include "blackbox/event_source.h"

namespace {

using sluice::blackbox::EventKind;
using sluice::blackbox::EventSource;

const EventSource kRank = EventSource::of_rank({}, 3);

void event(benchmark::State& state) {
  const std::string text(static_cast<size_t>(state.range(0)), 'x');
  for (auto _ : state) kRank.record(EventKind::kConnectionLost, {.peer = 1, .a = 2}, text);
}
BENCHMARK(event)->ArgName("text_bytes")->Arg(0)->Arg(100)->ThreadRange(1, 2);

void operation(benchmark::State& state) {
  uint64_t number = 0;
  for (auto _ : state)
    kRank.record_frequent(EventKind::kOperationBegan, {.peer = 1, .a = ++number, .b = 4096, .at = 1});
}
BENCHMARK(operation)->ThreadRange(1, 2);

void file(benchmark::State& state) {
  for (int i = 0; i < 10'000; ++i) {
    kRank.record(EventKind::kConnectionLost, {.peer = 1, .a = 2}, "a reason of usual length");
    kRank.record_frequent(EventKind::kOperationBegan, {.peer = 1, .a = 2, .b = 4096});
  }
  const std::string path = "/tmp/sluice-blackbox-bench-" + std::to_string(::getpid());
  for (auto _ : state) {
    if (sluice::blackbox::write_dump(path.c_str(), {"bench", "bench"}, sluice::blackbox::process_rings()) !=
        nullptr)
      state.SkipWithError("cannot write the file");
  }
  std::remove(path.c_str());
}
BENCHMARK(file)->Unit(benchmark::kMillisecond);

}  // namespace
