// Class ColocationTestBed runs sessions whose ranks are threads of this process, each with its own reducer
// and with dedicated reducers over loopback.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "colocated/hosted_reducer.h"
#include "core/clock.h"
#include "gpu_client/engine/session/session.h"
#include "reducer/reducer.h"
#include "tests/support/reserved_port.h"
#include "tests/support/scripted_client.h"

namespace sluice::test {

class ColocationTestBed : public testing::Test {
 protected:
  void start_reducers(size_t count, uint64_t withheld_features = 0) {
    for (size_t i = 0; i < count; ++i) {
      reducer::ReducerOptions o;
      o.listen_port = 0;
      o.lanes = 2;
      o.withheld_features = withheld_features;
      auto started = reducer::Reducer::start(o);
      ASSERT_TRUE(started) << started.error().text;
      pool.push_back({.host = "127.0.0.1", .port = (*started)->port()});
      reducers.push_back(std::move(*started));
    }
  }
  [[nodiscard]] engine::SessionOptions options(uint32_t rank, uint32_t ranks) const {
    engine::SessionOptions o;
    o.join.reducers = pool;
    engine::Identity& identity = o.join.identity;
    identity.session = session_id(tag);
    identity.rank = rank;
    identity.ranks = ranks;
    identity.token = token;
    identity.fault_tolerant = true;
    o.join.connect_timeout = 5 * kSecond;
    o.join.join_timeout = 10 * kSecond;
    o.join.colocation.mode = mode;
    o.join.colocation.rendezvous = {.host = "127.0.0.1", .port = rendezvous.number()};
    o.join.colocation.start_reducer = colocated::local_reducer_factory({});
    o.linger = 3 * kSecond;
    return o;
  }
  using Adjust = std::function<void(uint32_t rank, engine::SessionOptions&)>;
  using Body = std::function<void(uint32_t rank, engine::Session&)>;
  // Runs a session of `ranks` threads: creates, runs `body`, closes. Returns the errors of create() by rank.
  std::vector<std::string> run(uint32_t ranks, const Adjust& adjust, const Body& body) const {
    std::vector<std::string> errors(ranks);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        engine::SessionOptions o = options(rank, ranks);
        if (adjust) adjust(rank, o);
        auto session = engine::Session::create(std::move(o));
        if (!session) {
          errors[rank] = session.error().text;
          return;
        }
        if (body) body(rank, **session);
        EXPECT_EQ((*session)->close().code(), Errc::kOk) << "rank " << rank << ": " << (*session)->reason();
      });
    }
    for (std::thread& t : threads) t.join();
    return errors;
  }
  // Runs an operation to its end, which must be good.
  static void run_operation(engine::Session& session, const engine::OpRequest& request) {
    uint64_t handle = 0;
    ASSERT_EQ(session.start(request, handle).code(), Errc::kOk);
    ASSERT_EQ(session.wait(handle, monotonic_now() + 20 * kSecond).code(), Errc::kOk) << session.reason();
  }
  static void sum(engine::Session& session, std::vector<float>& data) {
    run_operation(session, {.send = reinterpret_cast<const std::byte*>(data.data()),
                            .recv = reinterpret_cast<std::byte*>(data.data()),
                            .count = data.size(),
                            .dtype = wire::DType::kF32,
                            .op = wire::Op::kSum});
  }
  // Values whose sum depends on the order of summation.
  static std::vector<float> values(uint32_t rank, size_t count) {
    std::vector<float> v(count);
    uint32_t state = rank * 2654435761U + 12345;
    for (float& x : v) {
      state = state * 1664525U + 1013904223U;
      x = static_cast<float>(static_cast<int32_t>(state)) * (state % 7 == 0 ? 1e-3F : 1e-9F);
    }
    return v;
  }
  // The balanced binary tree over the values of `ranks` ranks from `first` on.
  static std::vector<float> sum_as_tree(uint32_t ranks, size_t count, uint32_t first = 0) {
    if (ranks == 1) return values(first, count);
    const uint32_t left = std::bit_floor(ranks - 1);
    std::vector<float> v = sum_as_tree(left, count, first);
    const std::vector<float> right = sum_as_tree(ranks - left, count, first + left);
    for (size_t i = 0; i < count; ++i) v[i] += right[i];
    return v;
  }
  static void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }
  void expect_sums(uint32_t ranks, const Adjust& adjust = nullptr) const {
    const auto errors = run(ranks, adjust, [&](uint32_t rank, engine::Session& session) {
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{300'001}}) {
        std::vector<float> data = values(rank, count);
        sum(session, data);
        expect_same_bits(data, sum_as_tree(ranks, count));
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
  static void expect_all(const std::vector<std::string>& errors, const std::string& part) {
    for (const std::string& error : errors) EXPECT_NE(error.find(part), std::string::npos) << error;
  }

  std::vector<config::Endpoint> pool;
  std::vector<std::unique_ptr<reducer::Reducer>> reducers;
  uint8_t tag = 1;
  engine::ColocationMode mode = engine::ColocationMode::kAlways;
  const ReservedPort rendezvous;
  std::optional<wire::Digest> token;
};

}  // namespace sluice::test
