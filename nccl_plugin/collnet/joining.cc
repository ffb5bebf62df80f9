#include "nccl_plugin/collnet/joining.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/credentials.h"
#include "gpu_client/engine/greeting.h"
#include "gpu_client/engine/lane_terms.h"
#include "gpu_client/engine/tls_terms.h"
#include "nccl_plugin/collnet/agreement.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/pool_by_dns.h"
#include "wire/sha256.h"

namespace sluice::nccl::collnet {
namespace {

// What the nodes compare: short enough for a word between them, and enough to see the difference.
std::string common_text(const Settings& s, const Result<void>& known) {
  if (!known) return "none: " + known.error().text.substr(0, 900);
  std::string list;
  for (const config::Endpoint& e : s.reducers) list += (list.empty() ? "" : ",") + config::to_string(e);
  if (list.size() <= 1000) return list;
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(list)));
  std::string text = std::to_string(s.reducers.size()) + " reducers, " + list.substr(0, 900) + "... #";
  for (size_t i = 0; i < 8; ++i)
    text += "0123456789abcdef"[digest[i] >> 4], text += "0123456789abcdef"[digest[i] & 15];
  return text;
}

// The list as its file has it at this moment: a communicator may be made long after the plugin was loaded.
// What can't be read leaves the list as it was. One that only the DNS has is asked for here; `reached` says
// why not.
Settings with_pool_of_now(const Settings& s, Result<void>& reached) {
  Settings now = s;
  if (s.reducers_by_dns != 0) {
    if (const auto pool = pool_by_dns()) {
      now.reducers = *pool;
    } else {
      reached = tl::unexpected(pool.error());
    }
  }
  if (s.pool_file.empty()) return now;
  if (auto pool = config::read_pool("@" + s.pool_file)) {
    now.reducers = std::move(pool->reducers);
  } else {
    warn("the list of reducers stays as it was: %s", pool.error().text.c_str());
  }
  return now;
}

// Reaches every reducer before anybody joins: a reducer that one node can't reach, a wrong token and a full
// pool of versions show here, at once, and not when the others' join has waited its time.
Result<void> reach_all(const Settings& s, const engine::Identity& who, Nanos deadline) {
  for (const config::Endpoint& reducer : s.reducers) {
    auto greeting = engine::greet(reducer, who, wire::Purpose::kStatus, 0, 0, deadline);
    if (!greeting) {
      Error e = greeting.error();
      if (e.code == Errc::kUnauthenticated && !who.token)
        e.text += " (reducer requires a key: set SLUICE_KEY_FILE)";
      return tl::unexpected(std::move(e));
    }
  }
  return {};
}

Result<std::vector<Contact>> contacts_of(std::span<void* const> handles) {
  std::vector<Contact> contacts;
  for (const void* handle : handles) {
    auto c = read_handle(std::span<const std::byte, abi::kHandleBytes>(static_cast<const std::byte*>(handle),
                                                                       abi::kHandleBytes));
    if (!c) return tl::unexpected(c.error());
    contacts.push_back(std::move(*c));
  }
  if (auto distinct = check_distinct(contacts); !distinct) return tl::unexpected(distinct.error());
  return contacts;
}

}  // namespace

Result<std::unique_ptr<Comm>> join(std::span<void* const> handles, Listener& listener,
                                   const Settings& settings) {
  Result<void> reached;
  const Settings s = with_pool_of_now(settings, reached);
  // Everything up to the gathering is a function of what all nodes have, so it fails on all of them.
  auto nodes = contacts_of(handles);
  if (!nodes) return tl::unexpected(nodes.error());
  const auto mine = std::ranges::find(*nodes, listener.contact.identity, &Contact::identity);
  if (mine == nodes->end())
    return fail(Errc::kInvalidArgument, "this node's handle is not among those of the communicator");
  // The place in NCCL's array, which is in order of the heads' ranks and the same on all nodes: so sums are
  // made in the same order in every run of a job. NCCL's `rank` argument is not that place from 2.21 on.
  const auto rank = static_cast<uint32_t>(mine - nodes->begin());
  const auto ranks = static_cast<uint32_t>(nodes->size());
  const SessionId session = session_of(*nodes);
  const Nanos share = s.connect_timeout / 4;

  auto agreement = Agreement::gather({.nodes = std::move(*nodes),
                                      .rank = rank,
                                      .session = session,
                                      .common = common_text(s, reached),
                                      .local_address = listener.contact.address},
                                     std::move(listener.socket), {.call = share, .late = s.join_timeout});
  if (!agreement) return tl::unexpected(agreement.error());

  engine::SessionOptions options;
  options.join.reducers = s.reducers;
  options.join.pool_file = s.pool_file;
  options.join.who = {.session = session,
                      .rank = rank,
                      .ranks = ranks,
                      .job = s.job,
                      .tenant = s.tenant,
                      .token = std::nullopt,
                      .interface_address = listener.contact.address,
                      .survives = s.survive};
  options.join.lanes = s.lanes;
  options.join.window_bytes = s.window_bytes;
  options.join.slot_bytes = s.slot_bytes;
  options.join.connect_timeout = share;
  options.join.join_timeout = share;
  options.join.resume_timeout = s.resume_timeout;
  options.keep_results = s.survive;
  options.own_thread = s.own_thread;
  options.payload_crc = s.payload_crc;

  // First round: can everybody reach every reducer?
  if (!reached) {
    // Said by all: who found nobody is heard, and not waited for.
  } else if (auto token = engine::load_token(s.key_file, s.token_file, s.job)) {
    options.join.who.token = *token;
    auto tls = engine::read_tls_variables();
    auto lanes = engine::read_transport_variables();
    if (!tls || !lanes) {
      reached = tl::unexpected(!tls ? tls.error() : lanes.error());
    } else {
      options.join.who.tls = std::move(*tls);
      options.join.who.lanes = std::move(*lanes);
      reached = reach_all(s, options.join.who, monotonic_now() + share);
    }
  } else {
    reached = tl::unexpected(token.error());
  }
  if (auto all = agreement->decide(reached, monotonic_now() + share + kSecond); !all)
    return tl::unexpected(all.error());

  // Second round: did everybody join? The engine's own vote goes through a reducer, which may die between two
  // of its answers.
  auto created = engine::Session::create(std::move(options));
  const Result<void> joined = created ? Result<void>() : tl::unexpected(created.error());
  auto all = agreement->decide(joined, monotonic_now() + 2 * share + engine::kVerdictGrace + kSecond);
  agreement->part(monotonic_now() + kSecond);
  if (!all) {
    // Reducers that have taken the session for begun would wait for this node to come back.
    if (created) (*created)->abort(all.error().code, all.error().text);
    return tl::unexpected(all.error());
  }
  return std::make_unique<Comm>(std::move(*created), ranks, rank, static_cast<uint32_t>(s.reducers.size()),
                                uint64_t{s.window_bytes} * s.reducers.size());
}

}  // namespace sluice::nccl::collnet
