// Class HistoryLimit decides when an etcd's history is to be compacted, and up to which revision.
//
// etcd keeps every revision of every key until somebody compacts them, and refuses all changes when its
// database is full: each step of a model adds some 350 bytes. Sluice needs the past only while it reads a
// list in pages. Any thread.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "store/coordinator/coordinator.h"

namespace sluice::store::etcd {

class HistoryLimit {
 public:
  // Keeps the revisions of the last `kept`, and compacts no fewer than `least` at once.
  HistoryLimit(Nanos kept, Revision least) noexcept : kept_(kept), least_(least) {}

  // The store has this revision now. Returns the revision up to which the history may go, once.
  [[nodiscard]] std::optional<Revision> on_change(Revision revision, Nanos now) {
    const std::lock_guard lock(mutex_);
    if (mark_ == 0) mark_ = revision, marked_at_ = now;
    if (now - marked_at_ < kept_ || revision - mark_ < least_) return std::nullopt;
    marked_at_ = now;
    return std::exchange(mark_, revision);
  }

 private:
  const Nanos kept_;
  const Revision least_;
  std::mutex mutex_;
  Revision mark_ = 0;  // the next to which the history goes; 0: none yet
  Nanos marked_at_ = 0;
};

}  // namespace sluice::store::etcd
