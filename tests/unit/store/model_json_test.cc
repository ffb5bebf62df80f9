#include "store/model/model_json.h"

#include <gtest/gtest.h>

#include "store/model/model_state.h"
#include "tests/unit/store/model_fixture.h"

namespace sluice::store {
namespace {

using test::small_model;

TEST(ModelJson, ReadsWhatItWrites) {
  ModelSpec spec = small_model();
  EXPECT_EQ(parse_model(model_text(spec)).value(), spec);
  spec.mode = {.kind = StepKind::kBounded, .staleness = 8, .stale = StalePush::kScale};
  spec.rule = {.kind = RuleKind::kAdamW,
               .learning_rate = 0.1,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .epsilon = 1e-8,
               .weight_decay = 1e-300};
  EXPECT_EQ(parse_model(model_text(spec)).value(), spec);
  spec.mode = {.kind = StepKind::kAsync};
  spec.rule = {.kind = RuleKind::kAdd};
  EXPECT_EQ(parse_model(model_text(spec)).value(), spec);
}

constexpr const char* kGood = R"({"name":"m","versions":2,"mode":{"kind":"sync","quorum":2,"grace_ms":0},)"
                              R"("rule":{"kind":"sgd","learning_rate":1},)"
                              R"("tensors":[{"name":"w","dtype":"f32","shape":[2,3]}]})";

TEST(ModelJson, RejectsBadInputByField) {
  const struct {
    std::string from, to;  // replaced in kGood
    std::string error;
  } cases[] = {
      {R"({"name")", R"(["name")", "the model is not valid JSON: \"[\"name\""},
      {R"("name":"m",)", "", "name is missing; expected a text"},
      {R"("name":"m")", R"("name":7)", "name is 7; expected a text"},
      {R"("name":"m")", R"("name":"\u0000")", "name is \"?\"; expected 1 to 64"},
      {R"("versions":2)", R"("versions":-1)", "versions is -1; expected an integer from 0 to 4294967295"},
      {R"("versions":2)", R"("versions":4294967296)",
       "versions is 4294967296; expected an integer from 0 to 4294967295"},
      {R"("versions":2)", R"("versions":1.5)", "versions is 1.5; expected an integer"},
      {R"("versions":2)", R"("versions":0)", "versions is 0; expected 1 to 64"},
      {R"("versions":2)", R"("version":2)", "versions is missing; expected an integer"},
      {R"("versions":2)", R"("versions":2,"k":1)",
       "k is unknown; expected name, versions, mode, rule, tensors"},
      {R"({"kind":"sync","quorum":2,"grace_ms":0})", "[1]", "mode is [1]; expected an object"},
      {R"("sync")", R"("Sync")", R"(mode.kind is "Sync"; expected "sync", "async" or "bounded")"},
      {R"("sync")", R"("async")", "mode.grace_ms is unknown; expected kind"},
      {R"("sync")", R"("bounded")", "mode.staleness is missing; expected an integer"},
      {R"("quorum":2)", R"("quorum":"2")", "mode.quorum is \"2\"; expected an integer from 0 to 4294967295"},
      {R"("sgd")", R"("nesterov")", "rule.momentum is missing; expected a number"},
      {R"("learning_rate":1)", R"("learning_rate":"1")", "rule.learning_rate is \"1\"; expected a number"},
      {R"("learning_rate":1)", R"("learning_rate":1,"momentum":0)",
       "rule.momentum is unknown; expected kind, learning_rate"},
      {R"([{"name":"w","dtype":"f32","shape":[2,3]}])", "{}", "tensors is {}; expected a list of at most"},
      {R"([{"name":"w","dtype":"f32","shape":[2,3]}])", "[]", "the number of tensors is 0; expected 1 to"},
      {R"({"name":"w","dtype":"f32","shape":[2,3]})", "3", "tensors[0] is 3; expected an object"},
      {R"("f32")", R"("float")", R"(tensors[0].dtype is "float"; expected "f32", "f16" or "bf16")"},
      {R"("f32")", R"("i8")", R"(tensors[0].dtype is "i8"; expected "f32", "f16" or "bf16")"},
      {"[2,3]", "[2,-3]", "tensors[0].shape is [2,-3]; expected a list of at most 8 positive integers"},
      {"[2,3]", "[2,3.0]", "tensors[0].shape is [2,3.0]; expected a list"},
      {"[2,3]", "[1,1,1,1,1,1,1,1,1]", "tensors[0].shape is [1,1,1,1,1,1,1,1,1]; expected a list"},
      {"[2,3]", "[2,0]", "tensors[0].shape is [2, 0]; expected dimensions of 1 and more"},
  };
  ASSERT_TRUE(parse_model(kGood).has_value()) << parse_model(kGood).error().text;
  for (const auto& c : cases) {
    std::string text = kGood;
    const size_t position = text.find(c.from);
    ASSERT_NE(position, std::string::npos) << c.from;
    text.replace(position, c.from.size(), c.to);
    const auto result = parse_model(text);
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_TRUE(result.error().text.starts_with(c.error)) << result.error().text << "\nexpected " << c.error;
  }
  EXPECT_FALSE(parse_model("").has_value());
  EXPECT_FALSE(parse_model("null").has_value());
  EXPECT_FALSE(parse_model(std::string(100'000, '[')).has_value());
  EXPECT_FALSE(parse_model("{\"\xff\": 1}").has_value());
}

TEST(ModelJson, RejectsATextThatIsTooLong) {
  const auto result = parse_model(std::string(kMaxModelText + 1, ' '));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().text, "the model has 8388609 bytes of JSON; expected at most 8388608");
}

// It must need neither the stack nor the memory for each level.
TEST(ModelJson, RejectsDeepNesting) {
  const size_t depth = 1'000'000;
  std::string text = kGood;
  text.replace(text.find("[2,3]"), 5, std::string(depth, '[') + std::string(depth, ']'));
  EXPECT_EQ(parse_model(text).error().text, "the model is nested deeper than 16 levels");
  EXPECT_EQ(parse_model_state(R"({"spec":)" + text + "}").error().text,
            "the description of the model is nested deeper than 16 levels");
}

// Each value takes many times the memory of its text.
TEST(ModelJson, RejectsManyValues) {
  std::string values = "[";
  for (size_t i = 0; i < kMaxModelValues; ++i) values += "[],";
  const auto result = parse_model(values + "[]]");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text, "the model has more than " + std::to_string(kMaxModelValues) + " values");
}

TEST(ModelJson, ReadsTheLargestModel) {
  ModelSpec spec = small_model();
  spec.tensors.clear();
  for (size_t i = 0; i < kMaxTensors; ++i)
    spec.tensors.push_back(
        {"layer, [" + std::to_string(i) + "]", wire::DType::kF32, {1, 1, 1, 1, 1, 1, 1, 1}});
  EXPECT_TRUE(parse_model(model_text(spec)) == spec);
}

}  // namespace
}  // namespace sluice::store
