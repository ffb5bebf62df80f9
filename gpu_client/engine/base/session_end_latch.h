// Class SessionEndLatch stores the first reason for which a session ended, with the rank at fault, and
// ignores later ones.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "core/ids.h"
#include "core/status.h"
#include "wire/message_limits.h"

namespace sluice::engine {

class SessionEndLatch {
 public:
  // Ends the session with this reason, or with the one that preset() has stored. Returns false, without
  // effect, after the first call. Any thread.
  bool set(Errc code, std::string text, Rank rank = wire::kNoRank) {
    const std::lock_guard lock(mutex_);
    if (code_.load(std::memory_order_relaxed) != Errc::kOk) return false;
    if (preset_ == Errc::kOk) text_ = std::move(text), rank_ = rank;
    code_.store(preset_ == Errc::kOk ? code : preset_, std::memory_order_release);
    return true;
  }
  // Stores the reason that the next set() uses whatever its arguments are. abort() calls preset() before it
  // sends ABORT, because the reducers' answers may reach set() before abort() does. Any thread.
  void preset(Errc code, const std::string& text, Rank rank = wire::kNoRank) {
    const std::lock_guard lock(mutex_);
    if (code_.load(std::memory_order_relaxed) != Errc::kOk || preset_ != Errc::kOk) return;
    text_ = text;
    rank_ = rank;
    preset_ = code;
  }
  // kOk while the session runs. Any thread, no lock.
  [[nodiscard]] Errc code() const noexcept { return code_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // The rank that ended the session; wire::kNoRank while it runs, and if no rank is known.
  [[nodiscard]] Rank rank() const {
    const std::lock_guard lock(mutex_);
    return code_.load(std::memory_order_relaxed) == Errc::kOk ? wire::kNoRank : rank_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  Rank rank_ = wire::kNoRank;
  Errc preset_ = Errc::kOk;
  std::atomic<Errc> code_{Errc::kOk};
};

}  // namespace sluice::engine
