// A library that has a release like NCCL, for `sluice check plugin`: PLAYED_NCCL_RELEASE=22809.
#include <cstdlib>

// NOLINTNEXTLINE(readability-identifier-naming): the name of NCCL
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  const char* const release = std::getenv("PLAYED_NCCL_RELEASE");
  if (release == nullptr) return 4;  // ncclInvalidArgument
  *version = std::atoi(release);
  return 0;
}
