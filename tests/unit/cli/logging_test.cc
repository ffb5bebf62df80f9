#include "cli/process/logging.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(Logging, AValueIsQuotedAndStaysOnOneLine) {
  EXPECT_EQ(logfmt_quoted("a \"b\" c:\\d"), R"("a \"b\" c:\\d")");
  EXPECT_EQ(logfmt_quoted("a\nb\x9b"), R"("a\x0ab\x9b")");
  EXPECT_EQ(logfmt_quoted("J\u00fcrgen"), "\"J\u00fcrgen\"");
}

}  // namespace
}  // namespace sluice::cli
