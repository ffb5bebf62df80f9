// Between the device and the network: waits for each piece to be in host memory, has the session reduce it,
// and lets the device's stream that waits for the result go on. Two threads, one for each way, so that both
// may sleep in what they wait for. In the order given, on both ways.
//
// When the session or the device has failed pieces are passed on all the same, at once: no stream is left
// held.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/session.h"
#include "gpu_client/pipeline/device.h"
#include "gpu_client/pipeline/flight.h"

namespace sluice::pipeline {

// One operation of the session's: a piece, or the exponents of a round.
struct Parcel {
  std::unique_ptr<Event> ready;  // its contribution is in place; nothing: with the parcel before
  engine::OpRequest request;
  uint32_t number = 0;  // what *landed becomes when it is over
  bool piece = true;
  std::shared_ptr<Flight> flight;
  // The courier's.
  uint64_t name = 0;  // of the session's operation; 0: it was not taken, why is in `status`
  Status status;
};

class Courier {
 public:
  // All outlive the courier.
  Courier(engine::Session& session, Device& device, uint32_t* landed);
  // kSystem: no thread.
  [[nodiscard]] Result<void> start();
  // Everything given has been carried, and close() was called.
  ~Courier();
  Courier(const Courier&) = delete;

  // One of those that parcels came with and that are over, or nothing.
  [[nodiscard]] std::unique_ptr<Event> spare_event();
  void carry(Parcel parcel);
  // Parcels given and not over.
  [[nodiscard]] uint64_t under_way();

  // All parcels of the flight were given; `failed`: some could not be.
  void given(Flight& flight, Errc failed);
  // False at the deadline; else the flight has landed with `how`.
  [[nodiscard]] bool await(const Flight& flight, Nanos deadline, Errc& how);

  struct Counts {
    uint64_t operations = 0;  // that ended with kOk
    uint64_t pieces = 0;
  };
  [[nodiscard]] Counts counts();

  // Waits until all parcels are over, and from the deadline on fails the session, with which they end; ends
  // the threads. No more is given.
  void close(Nanos deadline);

 private:
  void run_out() noexcept;
  void run_in() noexcept;
  void send(Parcel& parcel) noexcept;
  // Whether somebody may wait for that.
  [[nodiscard]] bool land(Parcel& parcel) noexcept;
  void end_part(Flight& flight, Errc status) noexcept;

  engine::Session& session_;
  Device& device_;
  uint32_t* const landed_;
  std::mutex mutex_;
  // What each of the two threads waits for, and what callers do: a flight that has landed, nothing under way.
  std::condition_variable for_out_, for_in_, landed_one_;
  std::list<Parcel> out_, in_;  // nodes move on by themselves: the threads need no memory
  uint64_t under_way_ = 0;
  bool closing_ = false;
  Counts counts_;
  std::vector<std::unique_ptr<Event>> spare_;
  std::thread out_thread_, in_thread_;
};

}  // namespace sluice::pipeline
