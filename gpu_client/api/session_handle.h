// Struct sluice_session is the target of the C API's opaque session pointer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/include/sluice/sluice.h"
#include "gpu_client/pipeline/streams.h"

namespace sluice::api {

// Use of a session in a child of fork() is detected at the cost of one load. In the child the parent's
// sessions have no threads, the child must not write to their connections, and their mutexes may stay locked.

// Installs the handler that counts forks. Must succeed before the first fork_generation() is stored. Returns
// false if the system has no memory for the handler.
[[nodiscard]] bool install_fork_handler() noexcept;

// Returns the number of forks that lead to this process; a child's number differs from its parent's. Any
// thread.
[[nodiscard]] uint64_t fork_generation() noexcept;

}  // namespace sluice::api

struct sluice_session {
  std::unique_ptr<sluice::engine::CollectiveSession> engine;
  std::unique_ptr<sluice::pipeline::Streams> streams;  // destroyed before the engine
  std::mutex open_streams_mutex;                       // protects `streams`
  // Equal to streams.get() once the streams are open; read without the mutex.
  std::atomic<sluice::pipeline::Streams*> published_streams{nullptr};
  std::atomic<bool> has_operations{false};  // an operation was issued before streams were opened
  uint64_t fork_generation = sluice::api::fork_generation();  // of the process that created the session

  // Returns null while the session has no streams.
  [[nodiscard]] sluice::pipeline::Streams* streams_or_null() const noexcept {
    return published_streams.load(std::memory_order_acquire);
  }
};

namespace sluice::api {

// False in a child of fork(). Nothing of the session may be accessed then, not even its mutexes.
[[nodiscard]] inline bool is_owned_by_this_process(const sluice_session* session) noexcept {
  return session->fork_generation == fork_generation();
}

inline constexpr const char* kForkedText =
    "the session belongs to the parent process; create a new one after fork()";

}  // namespace sluice::api
