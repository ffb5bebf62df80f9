// Tests the C API of models against a reducer in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu_client/include/sluice/store.h"
#include "store/snapshot/half_floats.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/gpu_client/fake_store.h"

namespace sluice::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr const char* kSpec =
    R"({"name": "m", "versions": 2, "mode": {"kind": "async"}, "rule": {"kind": "add"},
        "tensors": [{"name": "a", "dtype": "f32", "shape": [300000]},
                    {"name": "b", "dtype": "bf16", "shape": [3, 100000]},
                    {"name": "c", "dtype": "f16", "shape": [5]}]})";

// The three tensors, all elements with one value.
struct Tensors {
  explicit Tensors(float value)
      : a(300'000, value), b(300'000, store::to_bf16(value)), c(5, store::to_f16(value)) {}
  std::vector<void*> pointers() { return {a.data(), b.data(), c.data()}; }
  std::vector<const void*> constants() const { return {a.data(), b.data(), c.data()}; }

  std::vector<float> a;
  std::vector<uint16_t> b;
  std::vector<uint16_t> c;
};

class StoreClientTest : public testing::Test {
 protected:
  ~StoreClientTest() override { sluice_store_close(store_); }

  sluice_status open(const std::string& reducers) {
    sluice_store_options options;
    sluice_store_options_init(&options);
    options.reducers = reducers.c_str();
    options.timeout_ms = timeout_ms_;
    options.worker = 5;
    return sluice_store_open(&options, &store_, error_.data(), error_.size());
  }
  void open_and_create(const FakeStore& reducer, const Tensors& tensors) {
    ASSERT_EQ(open(reducer.address()), SLUICE_OK) << error_.data();
    int created = 0;
    ASSERT_EQ(sluice_store_create(store_, kSpec, tensors.constants().data(), &created), SLUICE_OK)
        << sluice_store_error();
    ASSERT_EQ(created, 1);
  }
  sluice_status push(const Tensors& delta, uint64_t base, int dtype = SLUICE_F32, uint32_t timeout_ms = 0) {
    sluice_push_outcome outcome{};
    return sluice_store_push(store_, delta.constants().data(), base, 1, dtype, timeout_ms, &outcome,
                             &version_);
  }
  sluice_status pull(Tensors& tensors, uint64_t at_least, uint32_t timeout_ms = 0, int dtype = SLUICE_F32) {
    return sluice_store_pull(store_, tensors.pointers().data(), at_least, dtype, timeout_ms, &version_);
  }

  sluice_store* store_ = nullptr;
  uint32_t timeout_ms_ = 10'000;
  std::array<char, 300> error_{};
  uint64_t version_ = 0;
};

TEST_F(StoreClientTest, RefusesWrongOptions) {
  sluice_store_options options{};
  EXPECT_EQ(sluice_store_open(&options, &store_, error_.data(), error_.size()), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.data(),
               "sluice_store_options is not initialized; call sluice_store_options_init first");
  sluice_store_options_init(&options);
  EXPECT_EQ(options.timeout_ms, 60'000U);
  options.reducers = "none";
  EXPECT_EQ(sluice_store_open(&options, &store_, error_.data(), error_.size()), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_store_error(), "reducers: \"none\"; models need dedicated reducers");
  options.reducers = "127.0.0.1:1";
  options.timeout_ms = 0;
  EXPECT_EQ(sluice_store_open(&options, &store_, nullptr, 0), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_store_error(), "timeout_ms is 0; expected at least 1");
  EXPECT_EQ(store_, nullptr);
}

TEST_F(StoreClientTest, NamesAReducerWithoutModels) {
  const FakeStore old(FakeStore::Fault::kCloseAtHello);
  // A reducer with models that ends looks the same, so the client tries until its timeout. On a busy machine
  // a short one ends before the first answer.
  for (timeout_ms_ = 200; timeout_ms_ <= 6400; timeout_ms_ *= 2) {
    EXPECT_EQ(open(old.address()), SLUICE_TIMEOUT);
    if (std::string_view(error_.data()).find("connection closed") != std::string_view::npos) break;
  }
  EXPECT_THAT(error_.data(), HasSubstr("reducer " + old.address() + ": connection closed by the reducer"));
  EXPECT_THAT(error_.data(), HasSubstr("a reducer of a release without models does so"));
  timeout_ms_ = 10'000;
  const FakeStore without(FakeStore::Fault::kNoFeature);
  EXPECT_EQ(open(without.address()), SLUICE_UNSUPPORTED);
  EXPECT_THAT(error_.data(), HasSubstr("keeps no models; start it with --state"));
}

TEST_F(StoreClientTest, PushesAndPullsAllTypes) {
  const FakeStore reducer;
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(0.5F)));
  EXPECT_EQ(reducer.padding(), 0);
  ASSERT_EQ(push(Tensors(0.25F), 0), SLUICE_OK) << sluice_store_error();
  ASSERT_EQ(push(Tensors(0.25F), 1, SLUICE_BF16), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(version_, 2U);
  Tensors out(0);
  ASSERT_EQ(pull(out, 2), SLUICE_OK) << sluice_store_error();
  EXPECT_THAT(out.a, Each(1.0F));
  EXPECT_THAT(out.b, Each(store::to_bf16(1)));
  EXPECT_THAT(out.c, Each(store::to_f16(1)));
  EXPECT_EQ(pull(out, 3, 20), SLUICE_TIMEOUT);
  EXPECT_THAT(sluice_store_error(), HasSubstr("model \"m\" is at version 2; expected 3"));
  EXPECT_EQ(push(Tensors(1), 2, SLUICE_F64), SLUICE_INVALID_ARGUMENT);
  const char* json = nullptr;
  ASSERT_EQ(sluice_store_list(store_, &json), SLUICE_OK);
  EXPECT_STREQ(json, R"(["m"])");
  ASSERT_EQ(sluice_store_describe(store_, &json), SLUICE_OK);
  EXPECT_THAT(json, HasSubstr("\"version\": 2"));
  EXPECT_EQ(sluice_store_delete(store_, "m"), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(sluice_store_delete(store_, "m"), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(sluice_store_model(store_, "m"), SLUICE_REFUSED);
}

// The first shard ends in the middle of the second tensor and of a block.
TEST_F(StoreClientTest, PushesAndPullsBlocks) {
  const FakeStore reducer;
  Tensors first(0.5F);
  for (size_t i = 0; i < first.a.size(); ++i) first.a[i] = static_cast<float>(i % 8);
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, first));
  ASSERT_EQ(push(Tensors(0.25F), 0, SLUICE_MXFP8), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(reducer.padding(), 0);
  for (size_t i = 0; i < first.a.size(); ++i) first.a[i] += 0.25F;
  Tensors out(9);
  ASSERT_EQ(pull(out, 1), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(out.a, first.a);
  EXPECT_THAT(out.b, Each(store::to_bf16(0.75F)));
  EXPECT_THAT(out.c, Each(store::to_f16(0.75F)));
  // A value differs by at most half of the largest one's 127th part.
  out = Tensors(9);
  ASSERT_EQ(pull(out, 1, 0, SLUICE_INT8_BLOCK), SLUICE_OK) << sluice_store_error();
  for (size_t i = 0; i < first.a.size(); ++i)
    ASSERT_NEAR(out.a[i], first.a[i], 1.001F * 0.5F * 7.25F / 127) << i;
  ASSERT_EQ(push(Tensors(0), 1, SLUICE_INT8_BLOCK), SLUICE_OK) << sluice_store_error();
}

// One for each shard at once, whatever the number of clients and transfers; and one of each query.
TEST_F(StoreClientTest, ClientsShareConnections) {
  const FakeStore reducer;
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(0)));
  sluice_store* const first = std::exchange(store_, nullptr);
  ASSERT_EQ(open(reducer.address()), SLUICE_OK) << error_.data();
  ASSERT_EQ(sluice_store_model(store_, "m"), SLUICE_OK) << sluice_store_error();
  Tensors out(0);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(push(Tensors(1), i), SLUICE_OK) << sluice_store_error();
    ASSERT_EQ(pull(out, i + 1), SLUICE_OK) << sluice_store_error();
  }
  EXPECT_EQ(reducer.connections(), 2U + 4U);
  sluice_store_close(first);
  ASSERT_EQ(pull(out, 3), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(reducer.connections(), 2U + 4U);
}

TEST_F(StoreClientTest, RestoresASnapshot) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  {
    const FakeStore reducer;
    ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(0.5F)));
    ASSERT_EQ(sluice_store_snapshot(store_, path.c_str(), 1, &version_), SLUICE_OK) << sluice_store_error();
    sluice_store_close(store_);
    store_ = nullptr;
  }
  const FakeStore reducer;
  ASSERT_EQ(open(reducer.address()), SLUICE_OK) << error_.data();
  int created = 0;
  ASSERT_EQ(sluice_store_restore(store_, kSpec, path.c_str(), 0, &created), SLUICE_OK)
      << sluice_store_error();
  Tensors out(0);
  ASSERT_EQ(pull(out, 0), SLUICE_OK) << sluice_store_error();
  EXPECT_THAT(out.a, Each(0.5F));
  EXPECT_EQ(out.c.back(), store::to_f16(0.5F));
}

TEST_F(StoreClientTest, RepeatsWhatALostConnectionInterrupted) {
  const FakeStore reducer(FakeStore::Fault::kLosePushAnswers);
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(0)));
  ASSERT_EQ(push(Tensors(1), 0), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(version_, 1U);
  ASSERT_EQ(reducer.numbers().size(), 3U);
  EXPECT_THAT(reducer.numbers(), Each(reducer.numbers().front()));
}

// After a timeout the same deltas are a repetition, and others are a push of their own, also with the same
// base.
TEST_F(StoreClientTest, OtherDeltasAreAnotherPush) {
  const FakeStore reducer(FakeStore::Fault::kNoPushAnswers);
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(0)));
  for (const float value : {1.0F, 1.0F, 2.0F})
    EXPECT_EQ(push(Tensors(value), 0, SLUICE_F32, 1000), SLUICE_TIMEOUT);
  const std::vector<uint64_t> numbers = reducer.numbers();
  EXPECT_EQ(std::set<uint64_t>(numbers.begin(), numbers.end()).size(), 2U);
}

TEST_F(StoreClientTest, PullsAnotherVersionIfOneIsNoLongerKept) {
  const FakeStore reducer(FakeStore::Fault::kDropVersion);
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(2)));
  Tensors out(0);
  ASSERT_EQ(pull(out, 0), SLUICE_OK) << sluice_store_error();
  EXPECT_THAT(out.a, Each(2.0F));
}

TEST_F(StoreClientTest, PullsAgainAfterABodyThatTheReducerHasEnded) {
  const FakeStore reducer(FakeStore::Fault::kEndBody);
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(2)));
  Tensors out(0);
  const size_t queries = reducer.queries();
  ASSERT_EQ(pull(out, 0), SLUICE_OK) << sluice_store_error();
  EXPECT_THAT(out.a, Each(2.0F));
  EXPECT_GT(reducer.queries(), queries) << "after a failed attempt";
}

// No attempt fails, after which the client would open the model again.
TEST_F(StoreClientTest, ReplacesConnectionsThatTheReducerHasEnded) {
  FakeStore reducer;
  ASSERT_NO_FATAL_FAILURE(open_and_create(reducer, Tensors(2)));
  Tensors out(0);
  ASSERT_EQ(pull(out, 0), SLUICE_OK) << sluice_store_error();
  const size_t queries = reducer.queries();
  reducer.end_connections();
  ASSERT_EQ(pull(out, 0), SLUICE_OK) << sluice_store_error();
  EXPECT_EQ(reducer.queries(), queries);
}

TEST_F(StoreClientTest, RefusesMalformedAnswers) {
  const FakeStore shards(FakeStore::Fault::kWrongShards);
  ASSERT_EQ(open(shards.address()), SLUICE_OK) << error_.data();
  EXPECT_EQ(sluice_store_create(store_, kSpec, nullptr, nullptr), SLUICE_PROTOCOL);
  EXPECT_STREQ(sluice_store_error(), "shards is not a list of 1 to 1024 owners");
  sluice_store_close(store_);
  const FakeStore size(FakeStore::Fault::kWrongPullSize);
  ASSERT_NO_FATAL_FAILURE(open_and_create(size, Tensors(0)));
  Tensors out(0);
  EXPECT_EQ(pull(out, 0), SLUICE_PROTOCOL);
  EXPECT_THAT(sluice_store_error(), HasSubstr("bytes of shard 0; expected"));
  sluice_store_close(store_);
  const FakeStore block(FakeStore::Fault::kMalformedBlock);
  ASSERT_NO_FATAL_FAILURE(open_and_create(block, Tensors(0)));
  EXPECT_EQ(pull(out, 0, 0, SLUICE_INT8_BLOCK), SLUICE_PROTOCOL);
}

}  // namespace
}  // namespace sluice::test
