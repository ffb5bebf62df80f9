// What the pipeline needs of a device: streams that run what they are given in order, events between them,
// and copies between its memory and pinned memory of the host, with a cast on the way where asked.
// gpu_client/cuda and gpu_client/host are the two there are; tests/conformance/device holds both to this.
//
// Rules.
//  * "Gives" means: puts at the end of a stream and returns. Nothing that gives waits for a stream.
//  * Calls that give come from one thread at a time (the pipeline's lock); await(), is_over() and open() from
//    any thread, at any time; cast_error() from one thread at a time, beside calls that give.
//  * What a stream is told to wait for has been given before, so that one hardware queue could run everything
//    in the order in which it was given. hold() is the one exception: it waits for the host, which in its
//    turn waits only for what was given before it.
//  * After an error of one call all later ones may fail; finish() and the destructor work always.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "gpu_client/pipeline/cast.h"

namespace sluice::pipeline {

// Part of an operation's buffers that lies in one piece: `count` elements each. Segments of a piece follow
// each other in the staging without gaps.
struct Segment {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  uint64_t count = 0;
};

// Memory of the host that the device reads and writes by itself; zeroed, aligned to pages. Freed with it.
class Pinned {
 public:
  virtual ~Pinned() = default;
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
  enum class Where : uint8_t { kHost, kDevice };

  virtual ~Device() = default;

  // kSystem with the size and why.
  [[nodiscard]] virtual Result<std::unique_ptr<Pinned>> pin(size_t bytes) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Event>> make_event() = 0;

  // Returns when the streams of the device's own have done what they were given. Nothing of it is held by
  // then.
  virtual void finish() noexcept = 0;

  // Streams of the device's own, for what goes out to the network and what comes back. They wait for no other
  // stream but where told.
  [[nodiscard]] virtual Stream out() noexcept = 0;
  [[nodiscard]] virtual Stream in() noexcept = 0;

  // Why a stream of the caller's can't be used: of another device, none of ours, being captured.
  [[nodiscard]] virtual Result<void> check_stream(Stream stream) = 0;
  // Whether `stream` keeps an order, so that what comes behind can wait by it.
  [[nodiscard]] virtual bool keeps_order(Stream /*stream*/) const noexcept { return true; }
  // Where [at, at + bytes) lies: kDevice what only gather() and scatter() reach. kInvalidArgument with why it
  // can't be: another device's, or longer than what was allocated there.
  [[nodiscard]] virtual Result<Where> look_at(const void* at, uint64_t bytes) = 0;
  // Whether gather() and scatter() take memory that look_at() calls kHost. If not, such memory is reduced
  // where it lies, or refused.
  [[nodiscard]] virtual bool reaches_host_memory() const noexcept { return false; }

  // Gives `stream` the event: it is over when all is done that the stream was given before. An event that is
  // recorded again stands for the new place; who waits for the old one goes on doing so.
  [[nodiscard]] virtual Status record(Event& event, Stream stream) = 0;
  // Gives `stream` a wait for the event's place.
  [[nodiscard]] virtual Status wait(Stream stream, Event& event) = 0;
  // Gives `stream` a wait until *word, in pinned memory, has reached `value`, as numbers modulo 2^32: not
  // more than 2^31 behind it.
  [[nodiscard]] virtual Status hold(Stream stream, uint32_t* word, uint32_t value) = 0;

  // Gives `stream` the copy of segments' send parts into `staging`, in pinned memory, in the form that `cast`
  // says.
  [[nodiscard]] virtual Status gather(Stream stream, std::span<const Segment> segments, std::byte* staging,
                                      const Cast& cast) = 0;
  // The same from staging into segments' recv parts.
  [[nodiscard]] virtual Status scatter(Stream stream, const std::byte* staging,
                                       std::span<const Segment> segments, const Cast& cast) = 0;
  // Gives `stream` the search for each block's largest exponent (cast.h) in the send parts of a whole round;
  // `exponents`, one for each block, are in pinned memory.
  [[nodiscard]] virtual Status find_exponents(Stream stream, std::span<const Segment> segments,
                                              uint8_t* exponents) = 0;

  // Returns when the event is over; kSystem when the device has failed.
  [[nodiscard]] virtual Status await(Event& event) = 0;
  [[nodiscard]] virtual bool is_over(Event& event) = 0;
  // *word = value, and who is held by it looks again. What this thread has written before is seen by then.
  virtual void open(uint32_t* word, uint32_t value) noexcept = 0;

  // What casts with `measure` have cost so far. May wait for the streams of the device's own.
  [[nodiscard]] virtual Result<CastError> cast_error() = 0;
  // What the device said when a call last failed, for a person; may be called when it has.
  [[nodiscard]] virtual std::string last_words() const = 0;
};

}  // namespace sluice::pipeline
