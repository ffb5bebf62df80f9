// The floor that a reducer is measured against: a bare TCP star. One thread takes a chunk from each of n
// connections and, once all n have come, answers each with as many bytes. No adding, no frames, no checksums,
// nothing is looked at; sockets, window and memory (a slot per rank and chunk in flight) are those of a
// reducer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::bench {

struct StarServerOptions {
  uint32_t workers = 4;
  uint64_t chunk_bytes = 256 * 1024;
  uint64_t window_bytes = 2 * 1024 * 1024;  // per worker
  std::string port_file;
};

// Listens on loopback, writes the port, serves `workers` connections until one of them ends. Returns the exit
// code.
[[nodiscard]] int run_star_server(const StarServerOptions& options);

// One worker's side.
class StarClient {
 public:
  // Connects to 127.0.0.1. Throws Failure.
  StarClient(uint16_t port, uint64_t chunk_bytes, uint64_t window_bytes);
  ~StarClient();
  StarClient(const StarClient&) = delete;
  StarClient& operator=(const StarClient&) = delete;

  // Sends `bytes` (a multiple of the chunk) and receives as many, at most a window ahead. Throws Failure.
  void exchange(const std::byte* send, std::byte* recv, uint64_t bytes);

 private:
  int fd_ = -1;
  uint64_t chunk_bytes_;
  uint64_t window_bytes_;
};

// Chunks in flight, as wire::slots_per_lane has it for one lane.
[[nodiscard]] uint64_t star_slots(uint64_t window_bytes, uint64_t chunk_bytes) noexcept;

}  // namespace sluice::bench
