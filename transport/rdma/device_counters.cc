#include "transport/rdma/device_counters.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace sluice::transport::rdma {
namespace {

// Indexed by ibv_wc_status.
constexpr std::string_view kNames[] = {"SUCCESS",
                                       "LOC_LEN_ERR",
                                       "LOC_QP_OP_ERR",
                                       "LOC_EEC_OP_ERR",
                                       "LOC_PROT_ERR",
                                       "WR_FLUSH_ERR",
                                       "MW_BIND_ERR",
                                       "BAD_RESP_ERR",
                                       "LOC_ACCESS_ERR",
                                       "REM_INV_REQ_ERR",
                                       "REM_ACCESS_ERR",
                                       "REM_OP_ERR",
                                       "RETRY_EXC_ERR",
                                       "RNR_RETRY_EXC_ERR",
                                       "LOC_RDD_VIOL_ERR",
                                       "REM_INV_RD_REQ_ERR",
                                       "REM_ABORT_ERR",
                                       "INV_EECN_ERR",
                                       "INV_EEC_STATE_ERR",
                                       "FATAL_ERR",
                                       "RESP_TIMEOUT_ERR",
                                       "GENERAL_ERR",
                                       "TM_ERR",
                                       "TM_RNDV_INCOMPLETE",
                                       "others"};
static_assert(kNames[IBV_WC_GENERAL_ERR] == "GENERAL_ERR" && kNames[IBV_WC_RETRY_EXC_ERR] == "RETRY_EXC_ERR");

}  // namespace

void DeviceCounters::add_completion_error(ibv_wc_status status) noexcept {
  static_assert(std::size(kNames) == kStatuses);
  add(failures_[std::min<size_t>(status, kStatuses - 1)], 1);
}

void DeviceCounters::fill(DeviceReport& report) const {
  const auto get = [](const Counter& c) { return c.load(std::memory_order_relaxed); };
  report.pairs_made = get(pairs_made_);
  report.pairs_open = get(pairs_open_);
  report.pairs_failed = get(pairs_failed_);
  report.registrations = get(registrations_);
  report.registrations_failed = get(registrations_failed_);
  report.registered_bytes = get(registered_bytes_);
  report.bytes_in = get(bytes_in_);
  report.bytes_out = get(bytes_out_);
  report.retries_exhausted = get(failures_[IBV_WC_RETRY_EXC_ERR]) + get(failures_[IBV_WC_RNR_RETRY_EXC_ERR]);
  for (size_t i = 0; i < kStatuses; ++i) {
    if (const uint64_t n = get(failures_[i]); n > 0) report.completion_errors.emplace_back(kNames[i], n);
  }
}

}  // namespace sluice::transport::rdma
