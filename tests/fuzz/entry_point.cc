// The entry point of a target, for libFuzzer or replay_main.cc.
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::fuzz_one({data, size});
  return 0;
}
