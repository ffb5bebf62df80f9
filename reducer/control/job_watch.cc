#include "reducer/control/job_watch.h"

namespace sluice::reducer {

JobWatch::Verdict JobWatch::look(Nanos now, bool has_sessions) noexcept {
  if (terms_.expected == 0) return Verdict::kGoOn;
  if (has_sessions) {
    idle_since_ = now;
    return Verdict::kGoOn;
  }
  const bool is_quiet = now - idle_since_ >= terms_.idle;
  if (most_ >= terms_.expected) return is_quiet ? Verdict::kDone : Verdict::kGoOn;
  const bool is_late = terms_.arrival != 0 && now - started_ >= terms_.arrival;
  return is_late && (most_ == 0 || is_quiet) ? Verdict::kNeverCame : Verdict::kGoOn;
}

}  // namespace sluice::reducer
