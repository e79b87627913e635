#include "base/error.h"
#include <gtest/gtest.h>
#include <clocale>
#include "base/fail.h"
#include "base/text.h"
#include "error_of.h"

namespace linnet {
namespace {
std::string message_of(const std::string& text) {
  return error_of([&] { fail_user(text); });
}

TEST(Error, AMessageIsOneLineThatDoesNotSpeakToTheTerminal) {
  EXPECT_EQ(message_of("'a\nb\r\x1b[2J\x7f': \xC3\xA9 \xE4\xB8\x96"), "'a b  [2J ': \xC3\xA9 \xE4\xB8\x96");
  EXPECT_EQ(message_of("a\xC2\x9B"
                       "b\xE2\x80\xA8"
                       "c\xE2\x80\xA9"
                       "d\xC2\xA0"),
      "a  b   c   d\xC2\xA0");
  EXPECT_EQ(message_of("\xC2"), "\xC2");
}

// The host of the library may have chosen a locale whose numbers have a decimal comma.
TEST(Error, NumbersHaveAPointInEveryLocale) {
  const bool has_comma = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  EXPECT_EQ(error_of([] { fail_user("the rate is ", 1.5, ", not ", 1e-12); }), "the rate is 1.5, not 1e-12");
  EXPECT_EQ(printed("%g %.3f", 1.5, 2.0), "1.5 2.000");
  if (has_comma) EXPECT_STREQ(std::localeconv()->decimal_point, ",") << "the host's locale has changed";
  std::setlocale(LC_ALL, "C");
}

TEST(Error, OfALongMessageBeginningAndEndAreLeft) {
  std::string name;
  for (int i = 0; i < 40000; ++i) name += "\xE4\xB8\x96";
  for (const char* before : {"", "x", "xx"}) {
    const std::string message = message_of(before + ("tensor " + name) + before + " is not part of a Bert");
    EXPECT_LT(message.size(), 2100u);
    EXPECT_TRUE(message.starts_with(before + std::string("tensor \xE4\xB8\x96")));
    EXPECT_TRUE(message.ends_with(" is not part of a Bert"));
    EXPECT_EQ(
        (message.size() - std::string("tensor  ...  is not part of a Bert").size() - 2 * std::string(before).size()) %
            3,
        0u)
        << "whole characters";
  }
}
}  // namespace
}  // namespace linnet
