// A CUDA driver that plays GPUs on the processor: a library with the driver's symbols, for
// SLUICE_CUDA_DRIVER. Device memory is memory, a hardware queue is a thread, and kernels are those of
// gpu_client/cuda/kernels.cu, compiled as C++. It has what Sluice calls and what tests need beside it, and is
// strict where drivers are lenient: without a current context hardly anything is done.
//
// These are its controls, of a test that is linked with it. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace sluice::cuda_stand_in {

struct Live {
  int contexts = 0;  // primary ones, as often as they are retained
  int streams = 0;
  int events = 0;
  int modules = 0;
  uint64_t pinned_bytes = 0;
  uint64_t device_bytes = 0;
  friend bool operator==(const Live&, const Live&) = default;
};
Live live();

// As when the library was loaded, but for what is live: two GPUs, a queue for each stream, no failures.
void reset();

void set_gpus(int count);  // at most 4

// Streams of a GPU made from now on share one hardware queue, which does all in the order in which it was
// given; what waits there holds up everything behind it.
void use_one_queue(bool one);

// The call of `function` (plain name: "cuMemHostAlloc"), `nth` from now on, 1 being the next, does nothing
// and says `result`; CUDA_ERROR_ILLEGAL_ADDRESS is of its whole context from then on.
void fail_call(const char* function, int nth, CUresult result);

// The next kernel that runs fails as one does that wrote to a wrong address: with it all calls of its
// context, which lets go of what waits.
void fail_kernel(CUresult result);

// As between cuStreamBeginCapture, in the global mode, and cuStreamEndCapture. Calls that would break the
// capture say so.
void capture(CUstream stream, bool capturing);

}  // namespace sluice::cuda_stand_in
