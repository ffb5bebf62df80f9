#include "cli/commands/pool/pool_query.h"

#include <algorithm>
#include <future>

#include "config/json.h"
#include "core/clock.h"

namespace sluice::cli {
namespace {

constexpr size_t kMaxQueries = 32;  // at the same time

PoolSample::Reducer query_reducer(const config::Endpoint& reducer, const engine::Identity& identity,
                                  Nanos timeout) {
  PoolSample::Reducer out{.name = config::to_string(reducer)};
  const auto reply = bench::query_status(reducer, identity, timeout);
  out.at = monotonic_now();
  if (!reply) {
    out.error = reply.error().text;
    return out;
  }
  out.status = config::parse_json(*reply);
  if (!out.status.is_object()) {
    out.status = nullptr;
    out.error = "status is not valid JSON";
  }
  return out;
}

}  // namespace

PoolSample query_pool(const std::vector<config::Endpoint>& pool, const engine::Identity& identity,
                      Nanos timeout) {
  PoolSample all;
  for (size_t first = 0; first < pool.size(); first += kMaxQueries) {
    std::vector<std::future<PoolSample::Reducer>> queries;
    for (size_t i = first; i < std::min(pool.size(), first + kMaxQueries); ++i) {
      queries.push_back(std::async(std::launch::async, [&pool, &identity, timeout, i] {
        return query_reducer(pool[i], identity, timeout);
      }));
    }
    for (auto& query : queries) all.reducers.push_back(query.get());
  }
  return all;
}

}  // namespace sluice::cli
