#include "bench/e2e/report/nccl_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace sluice::bench {
namespace {

Row example() {
  Row row;
  row.bytes = 1048576;
  row.count = 262144;
  row.out_of_place = {.seconds = 123.456e-6, .alg_bw = 8.4935, .bus_bw = 12.740, .checked = true, .wrong = 0};
  row.in_place = {.seconds = 1.5, .alg_bw = 123.4, .bus_bw = 12345.6, .checked = false, .wrong = 0};
  row.wire_out = 1050000;
  row.wire_in = 1050100;
  row.reducer_cpu_per_gb = 0.2345;
  row.worker_cpu_per_gb = 0.5;
  return row;
}

// The lines of nccl-tests 2.19 with their exact spaces, because scripts parse them.
TEST(NcclTable, HeaderMatchesNcclTests) {
  EXPECT_EQ(header(false),
            "#\n"
            "#                                                              out-of-place                     "
            "  in-place          \n"
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time  "
            " algbw   busbw  #wrong \n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  "
            "(GB/s)  (GB/s)         \n");
}

TEST(NcclTable, RowMatchesNcclTests) {
  EXPECT_EQ(row_line(example(), false),
            "     1048576        262144     float     sum      -1   123.46    8.49   12.74       0  1500000  "
            "123.40   12346    N/A\n");
}

TEST(NcclTable, ExtraColumnsFollowOnTheRight) {
  Row row = example();
  row.in_place.checked = true;  // the N/A of nccl-tests is one character shorter
  const std::string plain = row_line(row, false);
  const std::string with = row_line(row, true);
  EXPECT_EQ(with.substr(0, plain.size() - 1), plain.substr(0, plain.size() - 1));
  std::istringstream lines(header(true));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) EXPECT_EQ(line.size(), with.size() - 1) << line;
}

TEST(NcclTable, FooterMatchesNcclTests) {
  EXPECT_EQ(footer("p", 0, 11.5, -1),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 11.5 \n#\n# Collective test concluded: "
            "p\n#\n\n");
  EXPECT_NE(
      footer("p", 3, 11.5, 12).find("# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 11.5 OK\n"),
      std::string::npos);
  EXPECT_NE(footer("p", 0, 10, 12).find(" : 10 FAILED\n"), std::string::npos);
}

TEST(NcclTable, NumbersFitTheirWidth) {
  EXPECT_EQ(format_to_width(1.234, 7), "   1.23");
  EXPECT_EQ(format_to_width(99999.94, 7), "99999.9");
  EXPECT_EQ(format_to_width(1234567, 7), "1234567");
  EXPECT_EQ(format_to_width(12345678, 7), "1.2e+07");
  EXPECT_EQ(format_to_width(1234.5, 6), "1234.5");
  EXPECT_EQ(format_to_width(1e9, 6), " 1e+09");
}

TEST(NcclTable, DeviceLineMatchesNcclTests) {
  EXPECT_EQ(device_line(3, 4711, "host1"),
            "#  Rank  3 Group  0 Pid   4711 on      host1 device  0 [0000:00:00] cpu\n");
}

}  // namespace
}  // namespace sluice::bench
