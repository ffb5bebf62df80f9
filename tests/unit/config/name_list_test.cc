#include "config/name_list.h"

#include <gtest/gtest.h>

namespace sluice::config {
namespace {

TEST(NameList, MatchesNamesLikeNccl) {
  EXPECT_TRUE(is_listed("eth", "eth0"));
  EXPECT_TRUE(is_listed("ens,eth", "eth0"));
  EXPECT_FALSE(is_listed("ens,eth1", "eth0"));
  EXPECT_TRUE(is_listed("=eth0", "eth0"));
  EXPECT_FALSE(is_listed("=eth", "eth0"));
  EXPECT_FALSE(is_listed("=eth0", "eth01"));
  EXPECT_TRUE(is_listed("=ens1,eth0", "eth0")) << "'=' applies to the whole list";
  EXPECT_FALSE(is_listed("^docker,lo", "docker0"));
  EXPECT_FALSE(is_listed("^docker,lo", "lo"));
  EXPECT_TRUE(is_listed("^docker,lo", "eth0"));
  EXPECT_FALSE(is_listed("^=lo", "lo"));
  EXPECT_TRUE(is_listed("^=lo", "lom1"));
  EXPECT_TRUE(is_listed("ens,,eth", "eth0"));
  EXPECT_FALSE(is_listed(",", "eth0")) << "an empty entry matches nothing";
}

TEST(NameList, MatchesPortsWhenOneIsGiven) {
  EXPECT_TRUE(is_listed("eth0:7470", "eth0"));
  EXPECT_TRUE(is_listed("mlx5_0:1", "mlx5_0", 1));
  EXPECT_FALSE(is_listed("mlx5_0:1", "mlx5_0", 2));
  EXPECT_TRUE(is_listed("mlx5_0", "mlx5_0", 2)) << "any port";
  EXPECT_TRUE(is_listed("^mlx5_0:1", "mlx5_0", 2));
  EXPECT_FALSE(is_listed("^mlx5_0:1", "mlx5_0", 1));
  EXPECT_TRUE(is_listed("=mlx5_1:2,mlx5_0:1", "mlx5_0", 1));
  EXPECT_FALSE(is_listed("mlx5_0:", "mlx5_0", 1));
}

TEST(NameList, PortFilterFollowsTheList) {
  EXPECT_FALSE(port_filter("")) << "no list means no filter";
  const auto filter = port_filter("=mlx5_0:1,mlx5_2");
  EXPECT_TRUE(filter("mlx5_0", 1));
  EXPECT_FALSE(filter("mlx5_0", 2));
  EXPECT_TRUE(filter("mlx5_2", 2));
}

}  // namespace
}  // namespace sluice::config
