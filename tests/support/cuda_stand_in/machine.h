// All that the driver that is played knows, behind one lock.
#pragma once

#include <cuda.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cuda_stand_in/queue.h"

namespace sluice::cuda_stand_in {

constexpr int kMostGpus = 4;

// How far a stream is; outlives it with those who wait for it.
struct Progress {
  uint64_t given = 0;
  uint64_t done = 0;
};

struct Context;

struct Stream {
  Context* context = nullptr;
  bool blocking = false;  // waits for the legacy stream, and that for it
  bool capturing = false;
  std::shared_ptr<Queue> queue;
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();
};

struct Context {
  int ordinal = 0;
  int retained = 0;
  CUresult broken = CUDA_SUCCESS;
  std::shared_ptr<Stream> legacy;
  std::weak_ptr<Queue> only_queue;  // of streams made while there may be but one
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
};

struct Mark {
  bool over = false;
};

struct Event {
  Context* context = nullptr;
  std::shared_ptr<Mark> mark;  // null: never recorded
};

struct Module {
  Context* context = nullptr;
};

enum class Kind : uint8_t { kDevice, kManaged, kPinned, kRegistered };

struct Allocation {
  size_t bytes = 0;
  Kind kind = Kind::kDevice;
  Context* context = nullptr;
};

struct Fault {
  std::string function;
  int nth = 0;
  CUresult result = CUDA_SUCCESS;
};

struct Machine {
  std::mutex mutex;
  std::condition_variable changed;  // a stream has got on, or a context has broken
  int gpus = 2;
  bool one_queue = false;
  bool started = false;
  std::array<Context, kMostGpus> primary;
  std::map<Stream*, std::shared_ptr<Stream>> streams;  // those that were created
  std::map<Event*, std::unique_ptr<Event>> events;
  std::map<Module*, std::unique_ptr<Module>> modules;
  std::map<CUdeviceptr, Allocation> memory;
  std::vector<Fault> faults;
  CUresult kernel_fault = CUDA_SUCCESS;

  // With the lock.
  [[nodiscard]] Stream* find(CUstream handle);
  [[nodiscard]] std::shared_ptr<Stream> make_stream(Context& context, bool blocking);
  [[nodiscard]] const Allocation* find(CUdeviceptr at, CUdeviceptr& begin) const;
  [[nodiscard]] bool capturing() const;
};
Machine& machine();

using Lock = std::unique_lock<std::mutex>;

// What each call asks first: a fault, a driver that was not started, no current context where one is needed,
// one that has broken.
enum class Needs : uint8_t { kNothing, kStarted, kContext };
CUresult enter(const char* function, Needs needs = Needs::kContext);
// The same of a call that a capture in the global mode does not bear.
CUresult enter_unsafe(const char* function);

// Of the calling thread.
std::vector<Context*>& context_stack();
Context* current();
CUstreamCaptureMode& capture_mode();

// Puts work at the end of the stream; it is left out when the context breaks before.
CUresult give(CUstream stream, std::function<CUresult()> work);
// Waits with the lock until the stream has done what it was given; then says how the context is.
CUresult synchronize(Lock& lock, const Stream& stream);

template <typename T, typename Handle>
T* as(Handle handle) {
  return reinterpret_cast<T*>(handle);
}

}  // namespace sluice::cuda_stand_in
