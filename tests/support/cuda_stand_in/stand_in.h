// The CUDA driver stand-in is a library with the symbols of the CUDA driver, for SLUICE_CUDA_DRIVER. It
// simulates GPUs on the CPU: GPU memory is host memory, a hardware queue is a thread, and the kernels are
// those of gpu_client/cuda/kernels.cu, compiled as C++. It implements the functions that Sluice and the tests
// call. It is stricter than a driver: nearly all calls require a current context.
//
// This header declares its controls for tests that link it. Any thread may call them.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace sluice::cuda_stand_in {

struct Live {
  int contexts = 0;  // retain counts of all primary contexts
  int streams = 0;
  int events = 0;
  int modules = 0;
  uint64_t pinned_bytes = 0;
  uint64_t device_bytes = 0;
  friend bool operator==(const Live&, const Live&) = default;
};
// Returns the number of objects that exist and the memory in use.
Live live();

// Restores the initial settings: two GPUs, a queue for each stream, no failures. Does not destroy objects.
void reset();

void set_gpus(int count);  // at most 4

// Makes all streams of a GPU that are created afterwards share one hardware queue. It runs all work in the
// order of submission, so a waiting stream blocks the others.
void use_one_queue(bool one);

// Makes the nth call of `function` from now on (1 is the next one) return `result` without effect. `function`
// is the plain name, such as "cuMemHostAlloc". CUDA_ERROR_ILLEGAL_ADDRESS also breaks the current context.
void fail_call(const char* function, int nth, CUresult result);

// Makes the next kernel fail like one with an illegal access. All later calls in its context fail, and
// waiting streams are released.
void fail_kernel(CUresult result);

// Simulates the time between cuStreamBeginCapture, in the global mode, and cuStreamEndCapture. Calls that
// would break the capture return an error.
void capture(CUstream stream, bool capturing);

}  // namespace sluice::cuda_stand_in
