#include "store/model/model_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/model/model_json.h"
#include "tests/unit/store/model_fixture.h"

namespace sluice::store::test {
namespace {

std::string state_text() {
  return R"({"spec": )" + model_text(small_model()) +
         R"(, "model": 17, "started": true, "version": 7, "newer": [1],
             "shards": [{"store": 99, "address": "[fd00::2]:7471", "generation": 3}]})";
}

TEST(ModelState, IsRead) {
  const auto state = parse_model_state(state_text());
  ASSERT_TRUE(state) << state.error().text;
  EXPECT_EQ(state->spec, small_model());
  EXPECT_EQ(state->model, 17U);
  EXPECT_EQ(state->version, 7U);
  EXPECT_TRUE(state->started);
  EXPECT_FALSE(state->created);
  const ShardOwner owner{.store = 99, .address = {.host = "fd00::2", .port = 7471}, .generation = 3};
  EXPECT_THAT(state->shards, testing::ElementsAre(owner));
}

TEST(ModelState, NamesTheFieldThatIsWrong) {
  const struct {
    const char* find;
    const char* replace;
    const char* error;
  } cases[] = {
      {"\"model\": 17", "\"model\": -1", "model is not a non-negative integer"},
      {"true", "1", "started is not true or false"},
      {"[fd00::2]:7471", "a:1,b:2", "shards[0]: address \"a:1,b:2\" is not host:port"},
      {"\"store\": 99, ", "", "shards[0]: store is not a non-negative integer"},
      {"[{", "{", "the description of the model is not a JSON object"},
      {"\"versions\":3", "\"versions\":0", "spec: versions is 0; expected 1 to 64"},
  };
  for (const auto& c : cases) {
    std::string text = state_text();
    text.replace(text.find(c.find), std::string(c.find).size(), c.replace);
    const auto state = parse_model_state(text);
    ASSERT_FALSE(state) << text;
    EXPECT_EQ(state.error().code, Errc::kBadField);
    EXPECT_EQ(state.error().text, c.error);
  }
  EXPECT_EQ(parse_model_names("[1]").error().code, Errc::kBadField);
}

}  // namespace
}  // namespace sluice::store::test
