// A reducer inside a module that a process of another language loads, as in the NCCL plugin.
#include <cstdio>
#include <memory>

#include "reducer/reducer.h"

namespace {

std::unique_ptr<sluice::reducer::Reducer>& running() {
  static std::unique_ptr<sluice::reducer::Reducer> reducer;
  return reducer;
}

}  // namespace

// Returns the port on loopback; 0 after an error.
extern "C" __attribute__((visibility("default"))) uint16_t hosted_reducer_start() {
  sluice::reducer::ReducerOptions options;
  options.listen_port = 0;
  options.lanes = 1;
  options.lanes_per_session = 1;
  options.hosted = true;
  auto started = sluice::reducer::Reducer::start(options);
  if (!started) {
    std::fprintf(stderr, "%s\n", started.error().text.c_str());
    return 0;
  }
  running() = std::move(*started);
  return running()->port();
}

// Returns when all threads have ended.
extern "C" __attribute__((visibility("default"))) void hosted_reducer_stop() {
  running().reset();
}
