#include "nccl_plugin/host/repeated_errors.h"

#include <algorithm>
#include <span>
#include <utility>

#include "nccl_plugin/host/log.h"

namespace sluice::nccl {

void RepeatedErrors::log_first(const char* object, const char* call, Errc code) noexcept {
  const Cause cause{.call = call, .code = code};
  const auto earlier = std::span(logged_).first(logged_count_);
  if (logged_count_ == logged_.size() || std::ranges::find(earlier, cause) != earlier.end()) {
    ++suppressed_;
    return;
  }
  logged_[logged_count_++] = cause;
  warn("%s: %s failed: %s; repetitions are counted, not logged", object, call, to_string(code).data());
}

void RepeatedErrors::log_suppressed(const char* object) noexcept {
  if (const uint64_t count = std::exchange(suppressed_, 0); count > 0)
    warn("%s: closed; %llu repeated errors were not logged", object, static_cast<unsigned long long>(count));
}

}  // namespace sluice::nccl
