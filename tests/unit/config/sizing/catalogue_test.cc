#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "config/sizing/csv_table.h"
#include "config/sizing/vm_catalogue.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHeader = "provider,type,role,gbps,usd_per_hour,note\n";

std::string error_of(const std::string& text) {
  const auto parsed = VmCatalogue::parse(text, "t.csv");
  return parsed ? "" : parsed.error().text;
}

TEST(CsvTable, ReadsQuotesSpacesAndComments) {
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

TEST(CsvTable, SaysWhereItIsWrong) {
  const auto wrong = [](const std::string& text) {
    const auto rows = parse_csv(text, "t.csv");
    return rows ? "" : rows.error().text;
  };
  EXPECT_EQ(wrong("a,b\n1,\"open\n2,3\n"), "t.csv:2:3: the quote is not closed on its line");
  EXPECT_EQ(wrong("a,b\"c\n"), "t.csv:1:4: a quote inside a field that does not begin with one");
  EXPECT_EQ(wrong("\"a\"b,c\n"), "t.csv:1:4: a comma is wanted behind the closing quote");
  EXPECT_EQ(wrong(std::string("a,b\n1,\0", 7)), "t.csv:2:3: a zero byte: this is no text");
  EXPECT_THAT(wrong(std::string(kMaxCsvBytes + 1, 'x')), StartsWith("t.csv:1:1: more than"));
}

TEST(VmCatalogue, HoldsTheBuiltInTable) {
  const VmCatalogue& table = VmCatalogue::built_in();
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

TEST(VmCatalogue, PicksTier1WhereAsked) {
  const VmCatalogue& table = VmCatalogue::built_in();
  EXPECT_DOUBLE_EQ((*table.find("c3-highcpu-44", VmRole::kReducer, "", false))->gbps, 32);
  EXPECT_DOUBLE_EQ((*table.find("c3-highcpu-44", VmRole::kReducer, "", true))->gbps, 50);
  EXPECT_DOUBLE_EQ((*table.find("n1-highcpu-16", VmRole::kReducer, "", true))->gbps, 32);
  EXPECT_THAT(table.find("n2-highcpu-80", VmRole::kReducer, "", false).error().text, HasSubstr("--tier1"));
  for (const VmType* vm : table.reducers_of("gcp", false)) EXPECT_FALSE(vm->tier1()) << vm->type;
  int of_c3 = 0;
  for (const VmType* vm : table.reducers_of("gcp", true)) {
    if (vm->type != "c3-highcpu-44") continue;
    EXPECT_TRUE(vm->tier1());
    ++of_c3;
  }
  EXPECT_EQ(of_c3, 1);
}

TEST(VmCatalogue, SaysWhatIsNotThere) {
  const VmCatalogue& table = VmCatalogue::built_in();
  EXPECT_THAT(table.find("n1-higcpu-16", VmRole::kReducer, "", false).error().text,
              HasSubstr("n1-highcpu-16"));
  EXPECT_THAT(table.find("p5.48xlarge", VmRole::kReducer, "", false).error().text, HasSubstr("as a worker"));
  EXPECT_THAT(table.find("n1-highcpu-16", VmRole::kReducer, "aws", false).error().text, HasSubstr("of aws"));
  EXPECT_THAT(table.find("\x1b[31m", VmRole::kReducer, "", false).error().text, HasSubstr("\"?[31m\""));
}

TEST(VmCatalogue, RefusesMalformedTables) {
  EXPECT_EQ(error_of(""), "t.csv:1:1: no line names the columns");
  EXPECT_EQ(error_of("provider,type,role\n"), "t.csv:1:1: column \"gbps\" is missing");
  EXPECT_EQ(error_of("provider,type,role,gbps,price\n"), "t.csv:1:25: unknown column \"price\"");
  EXPECT_EQ(error_of("provider,type,role,gbps,gbps\n"), "t.csv:1:25: column \"gbps\" stands here twice");
  const std::string h = kHeader;
  EXPECT_EQ(error_of(h + "aws,a,reducer,10,1\n"), "t.csv:2:18: 5 fields, where the columns are 6");
  EXPECT_EQ(error_of(h + "aws,a,server,10,1,\n"), "t.csv:2:7: \"server\" is neither worker nor reducer");
  for (const char* gbps : {"0", "-1", "nan", "inf", "1e400", "0x10", "ten", "", "1e7", "10 "}) {
    const std::string error = error_of(h + "aws,a,reducer,\"" + gbps + "\",1,\n");
    EXPECT_THAT(error, StartsWith("t.csv:2:15: ")) << gbps;
    EXPECT_THAT(error, HasSubstr("is no bandwidth")) << gbps;
  }
  EXPECT_THAT(error_of(h + "aws,a,reducer,10,free,\n"), StartsWith("t.csv:2:18: \"free\" is no price"));
  EXPECT_THAT(error_of(h + "aws,$(rm),reducer,10,1,\n"), StartsWith("t.csv:2:5: \"$(rm)\" is no name"));
  EXPECT_THAT(error_of(h + "aws,a\nb,c\n"), StartsWith("t.csv:2:5: 2 fields"));
  EXPECT_THAT(error_of(h + "aws,a,reducer,10,1,\x1b\n"), HasSubstr("control character"));
  EXPECT_EQ(error_of(h + "aws,a,reducer,10,1,\n#\naws,a,reducer,20,1,\n"),
            "t.csv:4:1: a stands in line 2 already");
  EXPECT_THAT(error_of("provider,type,role,gbps,price_date\naws,a,reducer,1,2026-02-30\n"),
              HasSubstr("is no date"));
  EXPECT_THAT(error_of("provider,type,role,gbps,gpus\naws,a,worker,1,1.5\n"), HasSubstr("number of GPUs"));
  std::string long_table = h;
  for (int i = 0; i < 5000; ++i) long_table += "aws,a" + std::to_string(i) + ",reducer,1,1,\n";
  EXPECT_THAT(error_of(long_table), HasSubstr("more than 4096 rows"));
}

TEST(VmCatalogue, LaysOneTableOverAnother) {
  const auto own = VmCatalogue::parse(
      std::string(kHeader) + "gcp,n1-highcpu-16,reducer,30,0.4,ours\nhere,rack,reducer,100,,\n", "own.csv");
  ASSERT_TRUE(own.has_value()) << own.error().text;
  const VmCatalogue both = VmCatalogue::built_in().with(*own);
  EXPECT_EQ(both.rows().size(), VmCatalogue::built_in().rows().size() + 1);
  EXPECT_DOUBLE_EQ((*both.find("n1-highcpu-16", VmRole::kReducer, "", false))->gbps, 30);
  EXPECT_DOUBLE_EQ((*both.find("rack", VmRole::kReducer, "", false))->gbps, 100);
  EXPECT_TRUE(both.find("c5n.18xlarge", VmRole::kReducer, "", false).has_value());
}

TEST(VmCatalogue, ReadsFilesAndSaysWhichItCannot) {
  const std::string path = ::testing::TempDir() + "sluice-vms-" + std::to_string(::getpid());
  EXPECT_EQ(VmCatalogue::read(path).error().code, Errc::kSystem);
  std::ofstream(path) << kHeader << "aws,a,reducer,x,1,\n";
  EXPECT_THAT(VmCatalogue::read(path).error().text, StartsWith(path + ":2:15: "));
  static_cast<void>(std::remove(path.c_str()));
}

}  // namespace
}  // namespace sluice::config
