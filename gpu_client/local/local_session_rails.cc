// The rails of a LocalSession: engine sessions whose ranks are hosts. How they join, follow changes of the
// pool, and end.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "gpu_client/engine/session/session.h"
#include "gpu_client/local/host_agreement.h"
#include "gpu_client/local/local_session.h"
#include "wire/sha256.h"

namespace sluice::local {

// In the order of the rails, on all ranks: so no rail waits for one that waits for it.
Result<void> LocalSession::join_rails(const HostAgreement& agreement) {
  for (uint32_t rail = 0; rail < topology_.rails; ++rail) {
    if (topology_.server_of(rail, host_) != topology_.local_of[rank()]) continue;
    engine::SessionOptions options = rail_options(rail);
    if (options.join.reducers.empty())
      options.join.colocation.rendezvous = agreement.rail_meeting_point(rail);
    auto joined = engine::Session::create(std::move(options));
    if (!joined) return add_context("rail " + std::to_string(rail), joined.error());
    rails_[rail] = std::move(*joined);
  }
  are_rails_complete_.store(true, std::memory_order_release);
  return {};
}

engine::SessionOptions LocalSession::rail_options(uint32_t rail) const {
  engine::SessionOptions o = options_;
  std::string name = "sluice rail " + std::to_string(rail) + " of ";
  name.append(o.join.identity.session.bytes.begin(), o.join.identity.session.bytes.end());
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(name)));
  engine::Identity& identity = o.join.identity;
  std::copy_n(digest.begin(), identity.session.bytes.size(), identity.session.bytes.begin());
  identity.rank = host_;
  identity.ranks = topology_.hosts();
  o.join.colocation.rails = topology_.rails;
  o.own_thread = true;
  o.device_memory = false;
  o.op_timeout = 0;  // this session has one of its own
  return o;
}

void LocalSession::check_rails() noexcept {
  if (!are_rails_complete_.load(std::memory_order_acquire)) return;
  try {
    for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
      if (rails_[rail] == nullptr) continue;
      if (const Errc code = rails_[rail]->code(); code != Errc::kOk)
        return end_for_all(code, "rail " + std::to_string(rail) + ": " + rails_[rail]->reason(), code);
    }
    // The rail lives, but has refused a piece.
    if (const Errc code = stage_->rail_status().code(); code != Errc::kOk)
      end_for_all(code, "a rail refused a piece: " + std::string(to_string(code)), code);
  } catch (const std::exception&) {  // out of memory for the text
    end_for_all(Errc::kExhausted, {}, Errc::kExhausted);
  }
}

// The first member of each rail, whose list counts, is on the host of rank 0. So rank 0 hands its list to the
// other ranks of its host.
Result<void> LocalSession::set_reducers(std::optional<config::Pool> pool) {
  if (rails_.empty()) {
    return fail(Errc::kUnsupported,
                "reducers cannot be changed: the session uses none, its ranks share a host");
  }
  if (rank() != 0 && host_ == 0) return {};  // the caller's list was valid
  for (const auto& rail : rails_) {
    if (rail == nullptr) continue;
    if (auto set = rail->set_reducers(pool); !set) return set;
  }
  if (rank() != 0) return {};
  std::string list;
  if (pool && !pool->file.empty()) {
    list = "@" + pool->file;
  } else if (pool) {
    for (const config::Endpoint& reducer : pool->reducers)
      (list += list.empty() ? "" : ",") += config::to_string(reducer);
    if (list.empty()) list = config::kNoReducers;
  }
  if (list.size() >= kMaxPoolText)
    return fail(Errc::kTooMany, "a list of " + std::to_string(list.size()) + " bytes; at most " +
                                    std::to_string(kMaxPoolText - 1) + " reach the other ranks of this host");
  const std::lock_guard lock(submission_);  // calls on several threads
  segment_->pool().write(list);
  stage_->wake_all();
  return {};
}

void LocalSession::follow_pool() {
  if (rank() == 0 || host_ != 0 || !are_rails_complete_.load(std::memory_order_acquire)) return;
  std::string list;
  if (!segment_->pool().read(pool_version_, list)) return;
  std::optional<config::Pool> pool;
  if (!list.empty()) {
    auto read = config::read_pool(list);
    if (!read) return log().warn("list of reducers from rank 0: " + read.error().text);
    pool = std::move(*read);
  }
  for (const auto& rail : rails_) {
    if (rail == nullptr) continue;
    if (auto set = rail->set_reducers(pool); !set)
      log().warn("list of reducers from rank 0: " + set.error().text);
  }
}

std::vector<config::Endpoint> LocalSession::usable_reducers() const {
  for (const auto& rail : rails_) {
    if (rail != nullptr) return rail->usable_reducers();
  }
  return rails_.empty() ? std::vector<config::Endpoint>() : options_.join.reducers;
}

}  // namespace sluice::local
