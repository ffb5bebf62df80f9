// How a session ended: the first reason wins and is kept.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "core/status.h"

namespace sluice::engine {

class Fate {
 public:
  // True for the first caller, whose reason it is from then on, unless one was claimed. Any thread.
  bool seal(Errc code, std::string text) {
    const std::lock_guard lock(mutex_);
    if (code_.load(std::memory_order_relaxed) != Errc::kOk) return false;
    if (claimed_ == Errc::kOk) text_ = std::move(text);
    code_.store(claimed_ == Errc::kOk ? code : claimed_, std::memory_order_release);
    return true;
  }
  // What the reason will be, whoever seals: of one who tells others before it ends anything here, and whom
  // they may answer first. Any thread.
  void claim(Errc code, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (code_.load(std::memory_order_relaxed) != Errc::kOk || claimed_ != Errc::kOk) return;
    text_ = text;
    claimed_ = code;
  }
  // kOk while the session runs. Any thread, no lock.
  [[nodiscard]] Errc code() const noexcept { return code_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  Errc claimed_ = Errc::kOk;
  std::atomic<Errc> code_{Errc::kOk};
};

}  // namespace sluice::engine
