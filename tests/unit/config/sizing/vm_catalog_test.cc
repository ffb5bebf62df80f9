#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "config/sizing/csv_table.h"
#include "config/sizing/vm_catalog.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHeader = "provider,type,role,gbps,usd_per_hour,note\n";

std::string error_of(const std::string& text) {
  const auto parsed = VmCatalog::parse(text, "t.csv");
  return parsed ? "" : parsed.error().text;
}

TEST(CsvTable, ParsesQuotesSpacesAndComments) {
  const auto rows = parse_csv("\xef\xbb\xbf# c\r\n\r\n a , \"b, \"\"c\"\"\" ,\r\n\"\",d e", "t.csv");
  ASSERT_TRUE(rows.has_value()) << rows.error().text;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].line, 3u);
  ASSERT_EQ((*rows)[0].fields.size(), 3u);
  EXPECT_EQ((*rows)[0].fields[0].text, "a");
  EXPECT_EQ((*rows)[0].fields[0].column, 2u);
  EXPECT_EQ((*rows)[0].fields[1].text, "b, \"c\"");
  EXPECT_EQ((*rows)[0].fields[2].text, "");
  EXPECT_EQ((*rows)[1].fields[1].text, "d e");
}

TEST(CsvTable, ErrorsNameLineAndColumn) {
  const auto csv_error = [](const std::string& text) {
    const auto rows = parse_csv(text, "t.csv");
    return rows ? "" : rows.error().text;
  };
  EXPECT_EQ(csv_error("a,b\n1,\"open\n2,3\n"), "t.csv:2:3: missing closing quote");
  EXPECT_EQ(csv_error("a,b\"c\n"), "t.csv:1:4: quote inside an unquoted field");
  EXPECT_EQ(csv_error("\"a\"b,c\n"), "t.csv:1:4: expected a comma after the closing quote");
  EXPECT_EQ(csv_error(std::string("a,b\n1,\0", 7)),
            "t.csv:2:3: file contains a NUL byte; expected UTF-8 text");
  EXPECT_THAT(csv_error(std::string(kMaxCsvBytes + 1, 'x')), StartsWith("t.csv:1:1: table is longer than"));
}

TEST(VmCatalog, ContainsTheBuiltInTable) {
  const VmCatalog& table = VmCatalog::built_in();
  EXPECT_GE(table.rows().size(), 76u);
  const auto n1 = table.find("n1-highcpu-16", VmRole::kReducer, "", false);
  ASSERT_TRUE(n1.has_value());
  EXPECT_DOUBLE_EQ((*n1)->gbps, 32);
  EXPECT_DOUBLE_EQ((*n1)->usd_per_hour.value_or(0), 0.5668);
  for (const VmType& vm : table.rows()) {
    EXPECT_FALSE(vm.bandwidth_source.empty()) << vm.type;
    EXPECT_FALSE(vm.bandwidth_date.empty()) << vm.type;
    EXPECT_FALSE(vm.arch.empty()) << vm.type;
    EXPECT_EQ(vm.usd_per_hour.has_value(), !vm.price_source.empty()) << vm.type;
    EXPECT_EQ(vm.role == VmRole::kWorker, vm.gpus > 0) << vm.type;
  }
}

TEST(VmCatalog, SelectsTier1WhenRequested) {
  const VmCatalog& table = VmCatalog::built_in();
  EXPECT_DOUBLE_EQ((*table.find("c3-highcpu-44", VmRole::kReducer, "", false))->gbps, 32);
  EXPECT_DOUBLE_EQ((*table.find("c3-highcpu-44", VmRole::kReducer, "", true))->gbps, 50);
  EXPECT_DOUBLE_EQ((*table.find("n1-highcpu-16", VmRole::kReducer, "", true))->gbps, 32);
  EXPECT_THAT(table.find("n2-highcpu-80", VmRole::kReducer, "", false).error().text, HasSubstr("--tier1"));
  for (const VmType* vm : table.reducers_of("gcp", false)) EXPECT_FALSE(vm->tier1()) << vm->type;
  int c3_rows = 0;
  for (const VmType* vm : table.reducers_of("gcp", true)) {
    if (vm->type != "c3-highcpu-44") continue;
    EXPECT_TRUE(vm->tier1());
    ++c3_rows;
  }
  EXPECT_EQ(c3_rows, 1);
}

TEST(VmCatalog, ErrorsSuggestTheNearestType) {
  const VmCatalog& table = VmCatalog::built_in();
  EXPECT_THAT(table.find("n1-higcpu-16", VmRole::kReducer, "", false).error().text,
              HasSubstr("n1-highcpu-16"));
  EXPECT_THAT(table.find("p5.48xlarge", VmRole::kReducer, "", false).error().text,
              HasSubstr("as a worker type, not as a reducer type"));
  EXPECT_THAT(table.find("n1-highcpu-16", VmRole::kReducer, "aws", false).error().text, HasSubstr("of aws"));
  EXPECT_THAT(table.find("\x1b[31m", VmRole::kReducer, "", false).error().text, HasSubstr("\"?[31m\""));
}

TEST(VmCatalog, RejectsMalformedTables) {
  EXPECT_EQ(error_of(""), "t.csv:1:1: expected a header line, found an empty table");
  EXPECT_EQ(error_of("provider,type,role\n"), "t.csv:1:1: missing column \"gbps\"");
  EXPECT_EQ(error_of("provider,type,role,gbps,price\n"), "t.csv:1:25: unknown column \"price\"");
  EXPECT_EQ(error_of("provider,type,role,gbps,gbps\n"), "t.csv:1:25: duplicate column \"gbps\"");
  const std::string h = kHeader;
  EXPECT_EQ(error_of(h + "aws,a,reducer,10,1\n"), "t.csv:2:18: expected 6 fields, found 5");
  EXPECT_EQ(error_of(h + "aws,a,server,10,1,\n"), "t.csv:2:7: expected worker or reducer, found \"server\"");
  for (const char* gbps : {"0", "-1", "nan", "inf", "1e400", "0x10", "ten", "", "1e7", "10 "}) {
    const std::string error = error_of(h + "aws,a,reducer,\"" + gbps + "\",1,\n");
    EXPECT_THAT(error, StartsWith("t.csv:2:15: ")) << gbps;
    EXPECT_THAT(error, HasSubstr("is not a bandwidth")) << gbps;
  }
  EXPECT_THAT(error_of(h + "aws,a,reducer,10,free,\n"), StartsWith("t.csv:2:18: \"free\" is not a price"));
  EXPECT_THAT(error_of(h + "aws,$(rm),reducer,10,1,\n"),
              StartsWith("t.csv:2:5: \"$(rm)\" is not a valid name"));
  EXPECT_EQ(error_of(h + "aws,a\nb,c\n"), "t.csv:2:5: expected 6 fields, found 2");
  EXPECT_THAT(error_of(h + "aws,a,reducer,10,1,\x1b\n"), HasSubstr("control character"));
  EXPECT_EQ(error_of(h + "aws,a,reducer,10,1,\n#\naws,a,reducer,20,1,\n"),
            "t.csv:4:1: a is already defined in line 2");
  EXPECT_THAT(error_of("provider,type,role,gbps,price_date\naws,a,reducer,1,2026-02-30\n"),
              HasSubstr("is not a date"));
  EXPECT_THAT(error_of("provider,type,role,gbps,gpus\naws,a,worker,1,1.5\n"), HasSubstr("number of GPUs"));
  std::string long_table = h;
  for (int i = 0; i < 5000; ++i) long_table += "aws,a" + std::to_string(i) + ",reducer,1,1,\n";
  EXPECT_THAT(error_of(long_table), HasSubstr("more than 4096 rows"));
}

TEST(VmCatalog, OverridesOneTableByAnother) {
  const auto own = VmCatalog::parse(
      std::string(kHeader) + "gcp,n1-highcpu-16,reducer,30,0.4,ours\nhere,rack,reducer,100,,\n", "own.csv");
  ASSERT_TRUE(own.has_value()) << own.error().text;
  const VmCatalog both = VmCatalog::built_in().with(*own);
  EXPECT_EQ(both.rows().size(), VmCatalog::built_in().rows().size() + 1);
  EXPECT_DOUBLE_EQ((*both.find("n1-highcpu-16", VmRole::kReducer, "", false))->gbps, 30);
  EXPECT_DOUBLE_EQ((*both.find("rack", VmRole::kReducer, "", false))->gbps, 100);
  EXPECT_TRUE(both.find("c5n.18xlarge", VmRole::kReducer, "", false).has_value());
}

TEST(VmCatalog, ReadErrorsNameTheFile) {
  const std::string path = ::testing::TempDir() + "sluice-vms-" + std::to_string(::getpid());
  EXPECT_EQ(VmCatalog::read(path).error().code, Errc::kSystem);
  std::ofstream(path) << kHeader << "aws,a,reducer,x,1,\n";
  EXPECT_THAT(VmCatalog::read(path).error().text, StartsWith(path + ":2:15: "));
  static_cast<void>(std::remove(path.c_str()));
}

}  // namespace
}  // namespace sluice::config
