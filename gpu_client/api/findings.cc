// Implements the C API of include/sluice/findings.h.
#include "gpu_client/include/sluice/findings.h"

#include "gpu_client/api/caller_buffers.h"
#include "gpu_client/api/session_handle.h"

using sluice::wire::FindingKind;

static_assert(SLUICE_FINDING_NON_FINITE == static_cast<int>(FindingKind::kNonFinite));
static_assert(SLUICE_FINDING_OUTLIER == static_cast<int>(FindingKind::kOutlier));
static_assert(SLUICE_FINDING_ZEROS == static_cast<int>(FindingKind::kZeros));

sluice_status sluice_next_finding(sluice_session* session, sluice_finding* finding) {
  if (session == nullptr || finding == nullptr || finding->struct_size < sizeof finding->struct_size)
    return SLUICE_INVALID_ARGUMENT;
  if (!sluice::api::is_owned_by_this_process(session)) return SLUICE_CLOSED;
  const auto next = session->engine->findings().pop();
  if (!next) return SLUICE_AGAIN;
  sluice_finding out{};
  out.struct_size = finding->struct_size;
  out.request = next->request;
  out.kind = static_cast<uint32_t>(next->finding.kind);
  out.rank = next->finding.rank;
  out.count = next->finding.count;
  out.ratio = next->finding.ratio;
  sluice::api::copy_sized(out, finding, out.struct_size);
  return SLUICE_OK;
}
