#include "nccl_plugin/host/pool_by_dns.h"

#include <unistd.h>

#include <utility>

#include "config/discovery/discover.h"
#include "nccl_plugin/host/log.h"

namespace sluice::nccl {
namespace {

Result<std::vector<config::Endpoint>> ask() {
  info("asking the DNS for the reducers (SLUICE_REDUCER_SERVICE)");
  const auto here = config::discovery::process_surroundings(environ);
  auto outcome = config::discovery::discover(here, "kubernetes");
  if (!outcome) return tl::unexpected(outcome.error());
  if (!outcome->found) return fail(Errc::kInvalidArgument, "SLUICE_REDUCER_SERVICE is not set any more");
  return std::move(outcome->found->reducers);
}

}  // namespace

const Result<std::vector<config::Endpoint>>& pool_by_dns() {
  static const Result<std::vector<config::Endpoint>> pool = ask();
  return pool;
}

}  // namespace sluice::nccl
