#include "data/text/unicode/utf8.h"
#include <gtest/gtest.h>

namespace linnet {
namespace {
TEST(Utf8, InvalidBytesAreReplaced) {
  EXPECT_EQ(replace_invalid_utf8("a\xC3\xA9\xFF\xE2\x82"), "a\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8(""), "");
}

using std::string_view;

TEST(Utf8, ValidTextHasNoInvalidByte) {
  for (string_view text :
      {"", "plain", "Grüße", "日本語", "👩‍🚀", "\xEF\xBF\xBD", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"})
    EXPECT_EQ(invalid_utf8_at(text), string_view::npos) << text;
}

TEST(Utf8, ReportsTheFirstMalformedByte) {
  EXPECT_EQ(invalid_utf8_at("ab\xFFzz"), 2u);
  EXPECT_EQ(invalid_utf8_at("\x80"), 0u);              // continuation without a start
  EXPECT_EQ(invalid_utf8_at("ä\xC3"), 2u);             // cut short at the end
  EXPECT_EQ(invalid_utf8_at("x\xE2\x82"), 1u);         // cut short
  EXPECT_EQ(invalid_utf8_at("x\xC0\xAF"), 1u);         // overlong '/'
  EXPECT_EQ(invalid_utf8_at("\xE0\x80\xAF"), 0u);      // overlong, three bytes
  EXPECT_EQ(invalid_utf8_at("\xF0\x80\x80\xAF"), 0u);  // overlong, four bytes
  EXPECT_EQ(invalid_utf8_at("\xED\xA0\x80"), 0u);      // a surrogate
  EXPECT_EQ(invalid_utf8_at("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(invalid_utf8_at("Gr\xFC\xDF"
                            "e"),
      2u);  // Latin-1
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; c += (c < 0x3000 ? 1 : 37)) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string text = to_utf8(c);
    ASSERT_EQ(invalid_utf8_at(text), string_view::npos) << static_cast<uint32_t>(c);
    ASSERT_EQ(utf8_length_at(text, 0), text.size()) << static_cast<uint32_t>(c);
    ASSERT_TRUE(utf8_code_point_at(text, 0) == c) << static_cast<uint32_t>(c);
  }
}

TEST(Utf8, SplitsAndCountsCodePoints) {
  const std::vector<string_view> expected = {"a", "ü", "日", "🚀"};
  EXPECT_EQ(split_code_points("aü日🚀"), expected);
  EXPECT_EQ(count_code_points("aü日🚀"), 4u);
  EXPECT_EQ(count_code_points("a\xFF\xC3"), 3u);  // malformed bytes count one each
  EXPECT_EQ(count_code_points(""), 0u);
}

TEST(Utf8, SplitsAtEveryKindOfWhiteSpace) {
  const std::vector<string_view> expected = {"ein", "Wort", "noch"};
  EXPECT_EQ(split_white_space("  ein\t\xC2\xA0Wort\xE3\x80\x80\r\nnoch "), expected);
  EXPECT_TRUE(split_white_space(" \t ").empty());
  EXPECT_TRUE(split_white_space("").empty());
}

TEST(Utf8, SplitsLines) {
  const std::string mark = "\xEF\xBB\xBF", text = mark + "ein\r\n\nWort\n" + mark;
  const std::vector<string_view> expected = {"ein", "", "Wort", mark};
  EXPECT_EQ(split_lines(text), expected);
  EXPECT_EQ(split_lines("ein\n"), std::vector<string_view>{"ein"});
  EXPECT_TRUE(split_lines("").empty());
}
}  // namespace
}  // namespace linnet
