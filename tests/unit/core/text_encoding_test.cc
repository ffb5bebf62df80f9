#include "core/text_encoding.h"

#include <gtest/gtest.h>

#include "core/log.h"

namespace sluice {
namespace {

TEST(VisibleText, KeepsWhatATerminalShows) {
  for (const char* const text : {"", "plain ~ \"\\", "J\u00fcrgen", "\u6f22\u5b57", "\U0001f600", "\u00a0"})
    EXPECT_EQ(visible_text(text), text);
}

TEST(VisibleText, EscapesWhatCommandsATerminalOrIsNoText) {
  EXPECT_EQ(visible_text("a\nb\x1b[2J\x7f"), "a\\x0ab\\x1b[2J\\x7f");
  EXPECT_EQ(visible_text("\u009b31m"), "\\xc2\\x9b31m") << "as ESC [";
  EXPECT_EQ(visible_text("\x9b"), "\\x9b");
  EXPECT_EQ(visible_text("a\u202eb\u2028\ufeff"), "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8\\xef\\xbb\\xbf");
  EXPECT_EQ(visible_text(std::string_view("\0", 1)), "\\x00");
}

TEST(VisibleText, EscapesInvalidUtf8) {
  EXPECT_EQ(visible_text("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(visible_text("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");
  EXPECT_EQ(visible_text("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(visible_text("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(visible_text("\xe6\xbc"), "\\xe6\\xbc") << "cut";
  EXPECT_EQ(visible_text("\xe6(\xbc"), "\\xe6(\\xbc");
  EXPECT_EQ(visible_text("\xff\xfe"), "\\xff\\xfe");
}

// A co-located reducer writes what peers send into the log of the training.
TEST(VisibleText, IsWhatTheDefaultLogWrites) {
  ::testing::internal::CaptureStderr();
  log::warn("rank 1: no\nsluice error: forged\x9b");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "sluice warning: rank 1: no\\x0asluice error: forged\\x9b\n");
}

}  // namespace
}  // namespace sluice
