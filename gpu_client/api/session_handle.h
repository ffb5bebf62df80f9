// What a sluice_session* points to.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "gpu_client/api/lineage.h"
#include "gpu_client/engine/session.h"
#include "gpu_client/include/sluice/sluice.h"
#include "gpu_client/pipeline/streams.h"

struct sluice_session {
  std::unique_ptr<sluice::engine::Session> engine;
  std::unique_ptr<sluice::pipeline::Streams> streams;  // goes before the engine
  std::mutex opening;                                  // of streams
  std::atomic<sluice::pipeline::Streams*> opened{nullptr};
  std::atomic<bool> has_begun{false};          // an operation was issued without streams
  uint64_t owner = sluice::api::generation();  // of the process that made it

  // nullptr: it has none.
  [[nodiscard]] sluice::pipeline::Streams* open_streams() const noexcept {
    return opened.load(std::memory_order_acquire);
  }
};

namespace sluice::api {

// False in a child of fork(): nothing of the session may be touched there, not even its locks.
[[nodiscard]] inline bool is_ours(const sluice_session* session) noexcept {
  return session->owner == generation();
}

}  // namespace sluice::api
