#include "nccl_plugin/collnet/session_connect.h"

#include <algorithm>
#include <utility>

#include "blackbox/process_dump.h"
#include "colocated/hosted_reducer.h"
#include "core/clock.h"
#include "core/text_encoding.h"
#include "gpu_client/engine/join/credentials.h"
#include "gpu_client/engine/join/handshake.h"
#include "gpu_client/engine/join/lane_settings.h"
#include "nccl_plugin/collnet/consensus.h"
#include "nccl_plugin/collnet/meeting_point.h"
#include "nccl_plugin/host/dns_pool.h"
#include "nccl_plugin/host/log.h"
#include "wire/sha256.h"

namespace sluice::nccl::collnet {
namespace {

// The text that the nodes compare: the list of reducers, and how the workers reduce beside them. A long list
// is truncated and ends with a digest, so that it fits a message and still shows every difference.
std::string list_text(const Settings& s, const Result<void>& discovered) {
  if (s.no_pool) return std::string(config::kNoReducers);
  if (!discovered) return "none: " + discovered.error().text.substr(0, 900);
  std::string list;
  for (const config::Endpoint& e : s.reducers) list += (list.empty() ? "" : ",") + config::to_string(e);
  if (list.size() <= 1000) return list;
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(list)));
  const std::string text = std::to_string(s.reducers.size()) + " reducers, " + list.substr(0, 900) + "... #";
  return text + hex_text(std::span(digest).first(8));
}

std::string common_text(const Settings& s, const Result<void>& discovered) {
  const bool is_default = s.colocated == engine::ColocationMode::kAuto;
  return list_text(s, discovered) +
         (is_default ? std::string() : std::string("; SLUICE_COLOCATED=") + to_string(s.colocated));
}

// What makes the common texts of all nodes equal, by the origin of the list.
std::string remedy(const Settings& s) {
  const std::string where = " and SLUICE_COLOCATED on all nodes";
  if (s.source.empty()) return "set the same SLUICE_REDUCERS" + where;
  if (s.dns_reducer_count != 0)
    return "set SLUICE_REDUCER_COUNT to the number of reducers of SLUICE_REDUCER_SERVICE, and the same" +
           where.substr(4);
  return "compare what \"sluice discover\" prints (source " + s.source + "), and set the same" +
         where.substr(4);
}

// Returns the settings with the current list of reducers: a communicator may be created long after the plugin
// was loaded. A pool file that cannot be read keeps the previous list. A pool of SLUICE_REDUCER_SERVICE is
// resolved here; `status` gets the error.
Settings with_current_pool(const Settings& s, Result<void>& status) {
  Settings current = s;
  if (s.dns_reducer_count != 0) {
    if (const auto pool = resolve_dns_pool()) {
      current.reducers = *pool;
    } else {
      status = tl::unexpected(pool.error());
    }
  }
  if (s.pool_file.empty()) return current;
  if (auto pool = config::read_pool("@" + s.pool_file)) {
    current.reducers = std::move(pool->reducers);
  } else {
    warn("pool file not reloaded, the previous reducers stay in use: %s", pool.error().text.c_str());
  }
  return current;
}

// Connects to every reducer before any node joins. So an unreachable reducer, a wrong token or an
// incompatible version is found at once, and not after the join timeout of the other nodes.
Result<void> check_reducers(const std::vector<config::Endpoint>& reducers, const engine::Identity& identity,
                            Nanos deadline) {
  for (const config::Endpoint& reducer : reducers) {
    auto handshake = engine::connect_and_handshake(reducer, identity, wire::Purpose::kStatus, 0, 0, deadline);
    if (!handshake) return tl::unexpected(handshake.error());
  }
  return {};
}

// Loads the credentials into `identity` and checks the reducers with them.
Result<void> prepare_identity(const Settings& s, engine::Identity& identity, Nanos timeout) {
  SLUICE_RETURN_IF_ERROR(engine::read_credentials({}, identity));
  SLUICE_ASSIGN_OR_RETURN(lanes, engine::read_lane_settings());
  identity.lanes = std::move(lanes);
  return check_reducers(s.reducers, identity, monotonic_now() + timeout);
}

// How many waits of the step timeout another node may need longer to join: to reach the reducers and to be
// joined by the others. With co-located reducers the nodes exchange data twice and try every reducer before.
constexpr int64_t kJoinSteps = 2;
constexpr int64_t kColocatedJoinSteps = 6;

Result<std::vector<NodeHandle>> decode_handles(std::span<void* const> handles) {
  std::vector<NodeHandle> nodes;
  for (const void* handle : handles) {
    const auto* const bytes = static_cast<const std::byte*>(handle);
    auto node = decode_node_handle(std::span<const std::byte, abi::kHandleBytes>(bytes, abi::kHandleBytes));
    if (!node) return tl::unexpected(node.error());
    nodes.push_back(std::move(*node));
  }
  if (auto distinct = check_distinct(nodes); !distinct) return tl::unexpected(distinct.error());
  return nodes;
}

}  // namespace

Result<std::unique_ptr<Comm>> connect_session(std::span<void* const> handles, Listener& listener,
                                              const Settings& settings) {
  Result<void> status;
  const Settings s = with_current_pool(settings, status);
  // Errors before Consensus::connect() depend only on data that all nodes have, so all nodes fail.
  auto nodes = decode_handles(handles);
  if (!nodes) return tl::unexpected(nodes.error());
  const auto own = std::ranges::find(*nodes, listener.handle.identity, &NodeHandle::identity);
  if (own == nodes->end()) return fail(Errc::kInvalidArgument, "the communicator has no handle of this node");
  // The rank is the position in NCCL's array, which is ordered by the ranks of the heads and equal on all
  // nodes. So sums are formed in the same order in every run of a job. NCCL's `rank` argument is another
  // number from 2.21 on.
  const auto rank = static_cast<uint32_t>(own - nodes->begin());
  const auto ranks = static_cast<uint32_t>(nodes->size());
  const SessionId session = session_id_of(*nodes);
  const std::string coordinator = nodes->front().address;
  const Nanos step_timeout = s.connect_timeout / 4;

  auto consensus =
      Consensus::connect({.nodes = std::move(*nodes),
                          .rank = rank,
                          .session = session,
                          .common_text = common_text(s, status),
                          .remedy = remedy(s),
                          .local_address = listener.handle.address},
                         std::move(listener.socket), {.connect = step_timeout, .join = s.join_timeout});
  if (!consensus) return tl::unexpected(consensus.error());

  engine::SessionOptions options;
  options.join.reducers = s.reducers;
  options.join.pool_file = s.pool_file;
  options.join.identity = {.session = session,
                           .rank = rank,
                           .ranks = ranks,
                           .token = std::nullopt,
                           .interface_address = listener.handle.address,
                           .fault_tolerant = s.fault_tolerant};
  options.join.lanes = s.lanes;
  options.join.window_bytes = s.window_bytes;
  options.join.slot_bytes = s.slot_bytes;
  options.join.connect_timeout = step_timeout;
  options.join.join_timeout = step_timeout;
  options.join.resume_timeout = s.resume_timeout;
  options.join.colocation.mode = s.colocated;
  options.join.colocation.link_rate = s.link_rate;
  options.join.colocation.start_reducer = colocated::local_reducer_factory({.payload_crc = s.payload_crc});
  options.keep_results = s.fault_tolerant;
  options.own_thread = s.own_thread;
  options.payload_crc = s.payload_crc;

  // First round: can all nodes reach all reducers? A node whose discovery failed votes with that error at
  // once.
  std::string announcement;
  if (status) status = prepare_identity(s, options.join.identity, step_timeout);
  if (status && s.no_pool && rank == 0) status = open_meeting_point(options.join, coordinator, announcement);
  auto announced = consensus->decide(status, monotonic_now() + step_timeout + kSecond, announcement);
  if (!announced) return tl::unexpected(announced.error());
  if (s.no_pool) {
    // The same for the reducer that the coordinator has started.
    status = set_meeting_point(options.join, coordinator, *announced);
    if (status) {
      status = check_reducers({options.join.colocation.rendezvous}, options.join.identity,
                              monotonic_now() + step_timeout);
    }
    if (auto all = consensus->decide(status, monotonic_now() + step_timeout + kSecond); !all)
      return tl::unexpected(all.error());
  }

  // Last round: have all nodes joined? The join vote of the engine is not sufficient: it goes through a
  // reducer, which may fail after it has answered only some of the nodes.
  blackbox::name_process("libnccl-net-sluice", "-nccl");
  auto created = engine::Session::create(std::move(options));
  const Result<void> joined = created ? Result<void>() : tl::unexpected(created.error());
  const int64_t steps = s.may_colocate(ranks) ? kColocatedJoinSteps : kJoinSteps;
  auto all =
      consensus->decide(joined, monotonic_now() + steps * step_timeout + engine::kVerdictGrace + kSecond);
  consensus->finish(monotonic_now() + kSecond);
  if (!all) {
    // Without the abort, reducers on which the session has started would wait for this node to reconnect.
    if (created) (*created)->abort(all.error().code, all.error().text);
    return tl::unexpected(all.error());
  }
  return std::make_unique<Comm>(std::move(*created), ranks, rank, s.window_bytes, listener.communicator);
}

}  // namespace sluice::nccl::collnet
