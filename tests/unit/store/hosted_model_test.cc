// What a reducer does with a version that it has prepared, when it learns of the model's state.
#include "store/server/hosted_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "tests/unit/store/model_fixture.h"

namespace sluice::store {
namespace {

constexpr StoreId kSelf = 1, kOther = 2, kThird = 3;

class HostedModelTest : public testing::Test {
 protected:
  HostedModelTest() {
    record_.spec = test::small_model();
    record_.spec.rule = {.kind = RuleKind::kAdd};
  }
  CoordinatedState state(bool is_started, uint64_t version, ShardHolders holders) {
    return {
        .is_started = is_started, .version = version, .shards = {holders, holders}, .revision = ++revision_};
  }
  Result<std::shared_ptr<HostedModel>> open(const CoordinatedState& state) {
    return HostedModel::open(folder_.path() + "/model", kSelf, record_, state, budget_,
                             [](StoreId) -> Result<MessageChannel> { return fail(Errc::kReset, "nobody"); });
  }
  // Prepares version 0 of shard 0 in generation 1, as the only holder.
  std::shared_ptr<HostedModel> prepared() {
    std::filesystem::create_directory(folder_.path() + "/model");
    auto model = open(state(false, 0, {.owner = kSelf, .generation = 1})).value();
    const auto elements = model->layout().shard_elements();
    const auto values = std::make_shared<std::vector<float>>(elements, 1.0F);
    for (uint32_t shard = 0; shard < 2; ++shard) {
      const auto installed =
          model->install({.model = record_.id, .shard = shard, .bytes = elements * sizeof(float)}, values);
      EXPECT_TRUE(installed) << installed.error().text;
    }
    return model;
  }

  Revision revision_ = 0;
  const sluice::test::TemporaryFolder folder_;
  ModelRecord record_{.id = 7, .job = "default", .spec = {}};
  const std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(uint64_t{1} << 30);
};

TEST_F(HostedModelTest, CommitsTheCurrentVersionIfItHasHeldTheShardEverSince) {
  const struct {
    const char* name;
    ShardHolders now;
    bool is_current;
  } cases[] = {{"the same generation", {.owner = kSelf, .copy = kNoStore, .generation = 1}, true},
               {"it has taken over", {.owner = kSelf, .copy = kThird, .generation = 2}, true},
               {"another has taken over, with it as the copy",
                {.owner = kOther, .copy = kSelf, .generation = 2},
                true},
               {"others held the shard", {.owner = kOther, .copy = kSelf, .generation = 3}, false},
               {"others hold the shard", {.owner = kOther, .copy = kThird, .generation = 2}, false}};
  for (const bool is_restarted : {false, true}) {
    for (const auto& c : cases) {
      SCOPED_TRACE(std::string(c.name) + (is_restarted ? ", after a restart" : ""));
      auto model = prepared();
      const CoordinatedState now = state(true, 0, c.now);
      if (is_restarted) {
        model.reset();
        model = open(now).value();
      } else {
        ASSERT_TRUE(model->apply(now));
      }
      const CoordinatedState later = state(true, 0, {.owner = kOther, .copy = kSelf, .generation = 9});
      ASSERT_TRUE(model->apply(later));
      EXPECT_EQ(model->has_current(0, later), c.is_current);
      model->remove();
    }
  }
}

TEST_F(HostedModelTest, AnOwnerWithoutTheCurrentVersionIsRefused) {
  prepared().reset();
  const auto opened = open(state(true, 0, {.owner = kSelf, .generation = 3}));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::kMismatch);
  EXPECT_NE(opened.error().text.find("shard 0 has version none, and the model is at version 0"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::store
