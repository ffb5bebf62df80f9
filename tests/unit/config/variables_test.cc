#include "config/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/nearest_name.h"

namespace sluice::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string_view> unknown(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  std::vector<std::string_view> out;
  for (const Variable& variable : unknown_variables(environment.data())) out.push_back(variable.name);
  return out;
}

TEST(Variables, WithoutThePrefixAreIgnored) {
  EXPECT_THAT(unknown({"PATH=/bin", "NCCL_DEBUG=INFO", "SLUICE", "sluice_lanes=1", "NOTHING"}), IsEmpty());
}

TEST(Variables, OfAnyComponentAreKnown) {
  EXPECT_THAT(unknown({"SLUICE_REDUCERS=a", "SLUICE_LISTEN=*:7470", "SLUICE_TEST_ANYTHING=1"}), IsEmpty());
}

TEST(Variables, UnknownOnesAreReturnedSortedByName) {
  EXPECT_THAT(unknown({"SLUICE_LANE=1", "SLUICE_DRAIN=1s", "SLUICE_=x"}),
              ElementsAre("SLUICE_", "SLUICE_DRAIN", "SLUICE_LANE"));
}

TEST(Variables, OfAKubernetesServiceAreKnown) {
  EXPECT_THAT(unknown({"SLUICE_REDUCER_SERVICE_HOST=10.0.0.1", "SLUICE_REDUCER_SERVICE_PORT=7470",
                       "SLUICE_REDUCER_SERVICE_PORT_DATA=7470", "SLUICE_REDUCER_PORT=tcp://10.0.0.1:7470",
                       "SLUICE_REDUCER_PORT_7470_TCP=tcp://10.0.0.1:7470",
                       "SLUICE_REDUCER_PORT_7470_TCP_ADDR=10.0.0.1"}),
              IsEmpty());
  EXPECT_THAT(unknown({"SLUICE_LISTEN_PORT=7470"}), ElementsAre("SLUICE_LISTEN_PORT"));
}

TEST(NearestName, HasTheSmallestEditDistance) {
  const std::vector<std::string_view> names = {"lanes", "listen", "tls"};
  EXPECT_EQ(nearest_name("lane", names), "lanes");
  EXPECT_EQ(nearest_name("tsl", names), "tls");
  EXPECT_EQ(nearest_name("listne", names), "listen");
  EXPECT_EQ(nearest_name("", names), "tls");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'l'), names).empty(), false);
}

}  // namespace
}  // namespace sluice::config
