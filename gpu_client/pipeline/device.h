// Class Device abstracts a GPU, or the host in its place, for the pipeline. It provides streams that run
// their work in order, events between streams, and copies between device memory and pinned host memory that
// convert elements on the way. gpu_client/cuda and gpu_client/host implement it; tests/conformance/device
// tests both.
//
// Enqueue. A function that "enqueues" appends work to a stream and returns. It never waits for a stream.
//
// Threads. Only one thread at a time may call functions that enqueue; the pipeline's mutex ensures that.
// Any thread may call synchronize(), is_complete() and write_value() at any time. One thread at a time may
// call cast_error(), also while another thread enqueues.
//
// Order. A stream waits only for work that was enqueued earlier, so a single hardware queue can run
// everything in the order of the calls. wait_value() is the one exception: it waits for the host. The host in
// turn waits only for work that was enqueued before that wait_value(). A violation deadlocks GPUs whose
// streams share a queue.
//
// Errors. After a failed call all later calls may fail. synchronize_copy_streams() and the destructor always
// work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "gpu_client/pipeline/cast.h"

namespace sluice::pipeline {

// A contiguous part of an operation's buffers: `count` elements in each. The ranges of a call lie in the
// staging buffer one after the other, without gaps. gather() needs no `recv`, and scatter() no `send`.
struct BufferRange {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  uint64_t count = 0;
  // With a block type, the rounding errors of the elements: gather() adds them to the values before it
  // encodes, and replaces them by the new errors. Of the same memory kind as `send`; null: dropped.
  float* residual = nullptr;
};

// Class PinnedMemory owns zeroed host memory, aligned to kPinnedAlignment, that the device accesses directly.
// The drivers of GPUs align it to more than a cache line, but not to pages.
inline constexpr size_t kPinnedAlignment = 256;
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 protected:
  std::span<std::byte> bytes_;
};

class Event {
 public:
  virtual ~Event() = default;
};

class Device {
 public:
  using Stream = void*;
  enum class MemoryLocation : uint8_t { kHost, kDevice };

  virtual ~Device() = default;

  // Returns kSystem with the size and the cause when the memory cannot be pinned.
  [[nodiscard]] virtual Result<std::unique_ptr<PinnedMemory>> allocate_pinned(size_t bytes) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Event>> make_event() = 0;

  // The two streams that the device owns: one for copies towards the network, one for copies back. Neither
  // implicitly waits for another stream.
  [[nodiscard]] virtual Stream copy_out_stream() noexcept = 0;
  [[nodiscard]] virtual Stream copy_in_stream() noexcept = 0;
  // Blocks until both have finished their work. No wait_value() may be pending on them.
  virtual void synchronize_copy_streams() noexcept = 0;

  // Returns an error if the caller's stream cannot be used: it belongs to another device, is not a stream, or
  // is being captured into a graph.
  [[nodiscard]] virtual Result<void> check_stream(Stream stream) = 0;
  // Whether `stream` has an order, so that later work in it can wait for an operation.
  [[nodiscard]] virtual bool is_ordered(Stream /*stream*/) const noexcept { return true; }
  // Returns where [address, address + bytes) lies; kDevice means that only gather() and scatter() access it.
  // Returns kInvalidArgument for memory of another device and for a range beyond its allocation.
  [[nodiscard]] virtual Result<MemoryLocation> locate(const void* address, uint64_t bytes) = 0;
  // Whether gather() and scatter() accept memory that locate() reports as kHost. If not, such memory is
  // reduced in place or refused.
  [[nodiscard]] virtual bool can_access_host_memory() const noexcept { return false; }

  // Enqueues the event into `stream`: it completes after all earlier work of the stream. Recording an event
  // again moves it; streams that already wait for the earlier position keep waiting for that one.
  [[nodiscard]] virtual Status record(Event& event, Stream stream) = 0;
  // Enqueues a wait for the event's current position.
  [[nodiscard]] virtual Status wait(Stream stream, Event& event) = 0;
  // Enqueues a wait until *word, in pinned memory, reaches `value`. The comparison is modulo 2^32, so the
  // word may be at most 2^31 behind `value`.
  [[nodiscard]] virtual Status wait_value(Stream stream, uint32_t* word, uint32_t value) = 0;

  // Enqueues the copy of the ranges' send parts into `staging`, in pinned memory, converted as `cast` says.
  [[nodiscard]] virtual Status gather(Stream stream, std::span<const BufferRange> ranges, std::byte* staging,
                                      const Cast& cast) = 0;
  // Enqueues the copy from `staging` into the ranges' recv parts.
  [[nodiscard]] virtual Status scatter(Stream stream, const std::byte* staging,
                                       std::span<const BufferRange> ranges, const Cast& cast) = 0;
  // Enqueues the search for the largest exponent of each block (cast.h) in the send parts of a whole batch.
  // Writes one byte for each block to `exponents`, in pinned memory.
  [[nodiscard]] virtual Status find_exponents(Stream stream, std::span<const BufferRange> ranges,
                                              uint8_t* exponents) = 0;

  // Blocks until the event is complete. Returns kSystem if the device has failed.
  [[nodiscard]] virtual Status synchronize(Event& event) = 0;
  [[nodiscard]] virtual bool is_complete(Event& event) = 0;
  // Sets *word and wakes the streams that wait for it. A woken stream sees all earlier writes of this thread.
  virtual void write_value(uint32_t* word, uint32_t value) noexcept = 0;

  // Returns the sum of the errors of all casts with `measure` so far. May wait for the device's own streams.
  [[nodiscard]] virtual Result<CastError> cast_error() = 0;
  // Returns the device's description of the last failed call.
  [[nodiscard]] virtual std::string last_error() const = 0;
};

}  // namespace sluice::pipeline
