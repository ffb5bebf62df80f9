// Struct DriverState holds the whole state of the simulated driver, protected by one mutex.
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

#include "tests/support/cuda_stand_in/hardware_queue.h"

namespace sluice::cuda_stand_in {

constexpr int kMaxGpus = 4;

// The progress of a stream, shared with its waiters, which may outlive it.
struct StreamProgress {
  uint64_t enqueued = 0;
  uint64_t done = 0;
};

struct Context;

struct Stream {
  Context* context = nullptr;
  bool blocking = false;  // the stream and the legacy stream wait for each other
  bool capturing = false;
  std::shared_ptr<HardwareQueue> queue;
  std::shared_ptr<StreamProgress> progress = std::make_shared<StreamProgress>();
};

struct Context {
  int ordinal = 0;
  int retained = 0;
  CUresult broken = CUDA_SUCCESS;
  std::shared_ptr<Stream> legacy;
  std::weak_ptr<HardwareQueue> only_queue;  // of streams created after use_one_queue(true)
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
};

struct EventPosition {
  bool reached = false;
};

struct Event {
  Context* context = nullptr;
  std::shared_ptr<EventPosition> position;  // null: never recorded
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

struct DriverState {
  std::mutex mutex;
  std::condition_variable changed;  // a stream has progressed or a context has broken
  int gpus = 2;
  bool one_queue = false;
  bool started = false;
  std::array<Context, kMaxGpus> primary;
  std::map<Stream*, std::shared_ptr<Stream>> streams;  // created by cuStreamCreate
  std::map<Event*, std::unique_ptr<Event>> events;
  std::map<Module*, std::unique_ptr<Module>> modules;
  std::map<CUdeviceptr, Allocation> memory;
  std::vector<Fault> faults;
  CUresult kernel_fault = CUDA_SUCCESS;

  // These require the mutex.
  [[nodiscard]] Stream* find(CUstream handle);
  [[nodiscard]] std::shared_ptr<Stream> make_stream(Context& context, bool blocking);
  [[nodiscard]] const Allocation* find(CUdeviceptr at, CUdeviceptr& begin) const;
  [[nodiscard]] bool capturing() const;
};
DriverState& driver_state();

using Lock = std::unique_lock<std::mutex>;

// Called first by each function of the driver. Returns an injected fault, or the error of a driver that is
// not initialized, of a missing current context, or of a broken context.
enum class Requires : uint8_t { kNothing, kStarted, kContext };
CUresult enter(const char* function, Requires needs = Requires::kContext);
// The same for calls that are not allowed during a stream capture in the global mode.
CUresult enter_unsafe(const char* function);

// State of the calling thread.
std::vector<Context*>& context_stack();
Context* current();
CUstreamCaptureMode& capture_mode();

// Appends work to the stream. The work is skipped if the context breaks before it runs.
CUresult enqueue(CUstream stream, std::function<CUresult()> work);
// Waits, with the lock, until the stream has completed its work. Returns the status of the context.
CUresult synchronize(Lock& lock, const Stream& stream);

template <typename T, typename Handle>
T* as(Handle handle) {
  return reinterpret_cast<T*>(handle);
}

}  // namespace sluice::cuda_stand_in
