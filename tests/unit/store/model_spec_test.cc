#include "store/model/model_spec.h"
#include "core/text_encoding.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/unit/store/model_fixture.h"

namespace sluice::store {
namespace {

using test::small_model;
using Change = std::function<void(ModelSpec&)>;

TEST(ModelSpec, RejectsBadFieldsByName) {
  const struct {
    Change change;
    std::string error;
  } cases[] = {
      {[](ModelSpec& m) { m.name = ""; }, "name is \"\"; expected 1 to 64 letters"},
      {[](ModelSpec& m) { m.name = "a/b"; }, "name is \"a/b\"; expected"},
      {[](ModelSpec& m) { m.name = ".hidden"; }, "name is \".hidden\"; expected"},
      {[](ModelSpec& m) { m.name = std::string(65, 'a'); }, "name is \"aaaa"},
      {[](ModelSpec& m) { m.tensors.clear(); }, "the number of tensors is 0; expected 1 to 65536"},
      {[](ModelSpec& m) { m.tensors[1].name = "a\nb"; }, "tensors[1].name is \"a?b\"; expected"},
      {[](ModelSpec& m) { m.tensors[1].name = "sluice.x"; }, "tensors[1].name is \"sluice.x\"; expected"},
      {[](ModelSpec& m) { m.tensors[1].name = "__metadata__"; }, "tensors[1].name is \"__metadata__\""},
      {[](ModelSpec& m) { m.tensors[2].name = "scale"; },
       "tensors[2].name is \"scale\"; expected another name than that of tensors[1]"},
      {[](ModelSpec& m) { m.tensors[0].dtype = wire::DType::kI8; },
       "tensors[0].dtype is \"i8\"; expected f32, f16 or bf16"},
      {[](ModelSpec& m) {
         m.tensors[0].shape = {3, 0};
       },
       "tensors[0].shape is [3, 0]; expected dimensions of 1 and more"},
      {[](ModelSpec& m) { m.tensors[0].shape.assign(9, 1); },
       "tensors[0].shape is [1, 1, 1, 1, 1, 1, 1, 1, 1]; expected at most 8 dimensions"},
      {[](ModelSpec& m) {
         m.tensors[2].shape = {uint64_t{1} << 63, 4};
       },
       "tensors[2].shape is [9223372036854775808, 4]; expected at most 4398046511104 elements in all "
       "tensors, 71 of them before"},
      {[](ModelSpec& m) { m.tensors[0].shape = {uint64_t{1} << 42}; }, "tensors[1].shape is []; expected"},
      {[](ModelSpec& m) { m.mode.quorum = 0; }, "mode.quorum is 0; expected 1 to 65536"},
      {[](ModelSpec& m) { m.mode.grace_ms = 86'400'001; },
       "mode.grace_ms is 86400001; expected 0 to 86400000"},
      {[](ModelSpec& m) { m.mode = {.kind = StepKind::kBounded, .staleness = 1'000'001}; },
       "mode.staleness is 1000001; expected 0 to 1000000"},
      {[](ModelSpec& m) { m.mode.kind = static_cast<StepKind>(3); }, "mode.kind is 3; expected 0 to 2"},
      {[](ModelSpec& m) { m.rule.kind = static_cast<RuleKind>(4); }, "rule.kind is 4; expected 0 to 3"},
      {[](ModelSpec& m) { m.rule.momentum = 1; }, "rule.momentum is 1; expected 0 to 0.999999999"},
      {[](ModelSpec& m) { m.rule.learning_rate = -0.5; }, "rule.learning_rate is -0.5; expected 0 to 1e+06"},
      {[](ModelSpec& m) { m.rule.learning_rate = std::numeric_limits<double>::quiet_NaN(); },
       "rule.learning_rate is nan; expected 0 to 1e+06"},
      {[](ModelSpec& m) { m.versions = 0; }, "versions is 0; expected 1 to 64"},
      {[](ModelSpec& m) { m.versions = 65; }, "versions is 65; expected 1 to 64"},
  };
  ASSERT_TRUE(validate(small_model()).has_value());
  for (const auto& c : cases) {
    ModelSpec spec = small_model();
    c.change(spec);
    const auto result = validate(spec);
    ASSERT_FALSE(result.has_value()) << c.error;
    EXPECT_TRUE(result.error().text.starts_with(c.error)) << result.error().text;
    EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
  }
}

TEST(ModelSpec, DescribesTheFirstDifference) {
  const struct {
    Change change;
    const char* sentence;
  } cases[] = {
      {[](ModelSpec&) {}, ""},
      {[](ModelSpec& m) { m.rule.momentum = 0.8; },
       "rule.momentum is 0.9 in the existing model, and 0.8 in the request"},
      {[](ModelSpec& m) { m.rule = {.kind = RuleKind::kAdd}; },
       "rule.kind is nesterov in the existing model, and add in the request"},
      {[](ModelSpec& m) { m.mode.kind = StepKind::kAsync; },
       "mode.kind is sync in the existing model, and async in the request"},
      {[](ModelSpec& m) { m.versions = 2; }, "versions is 3 in the existing model, and 2 in the request"},
      {[](ModelSpec& m) { m.tensors.pop_back(); },
       "the number of tensors is 3 in the existing model, and 2 in the request"},
      {[](ModelSpec& m) { m.tensors[1].shape = {1}; },
       "tensors[1] is \"scale\" f32 [] in the existing model, and \"scale\" f32 [1] in the request"},
  };
  for (const auto& c : cases) {
    ModelSpec other = small_model();
    c.change(other);
    EXPECT_EQ(difference(small_model(), other), c.sentence);
    EXPECT_EQ(fingerprint(other) == fingerprint(small_model()), other == small_model()) << c.sentence;
  }
}

// Files on disk hold the fingerprint. The value is sha256sum of the text in fingerprint().
TEST(ModelSpec, HasAStableFingerprint) {
  EXPECT_EQ(hex_text(fingerprint(small_model())),
            "58cfbddc472885fda795f4551671a3993071e293e3d0f4266a52c51d8b5ff7a9");
}

TEST(ModelSpec, NamesItsKinds) {
  for (const StepKind kind : {StepKind::kSync, StepKind::kAsync, StepKind::kBounded})
    EXPECT_EQ(parse_step_kind(to_string(kind)), kind);
  for (const StalePush policy : {StalePush::kRefuse, StalePush::kScale})
    EXPECT_EQ(parse_stale_push(to_string(policy)), policy);
  EXPECT_EQ(parse_step_kind("Sync"), std::nullopt);
}

}  // namespace
}  // namespace sluice::store
