#include "data/examples/text/dates.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <set>
#include <vector>
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr DateSplit kSplits[] = {DateSplit::kTrain, DateSplit::kValid, DateSplit::kTest};
constexpr int kMarch7th2019 = 17962, kFormats = 28;

TEST(Dates, EveryFormatWritesTheSameDay) {
  const std::vector<std::string> expected = {"March 7, 2019", "Thursday, March 7, 2019", "7th of March 2019",
      "Thu 7 Mar 2019", "March 7th, '19", "3/7/2019", "3/7/19", "7. März 2019", "Donnerstag, der 7. März 2019",
      "Do, 7. Mär. 2019", "am 7. März '19", "07.03.2019", "Donnerstag, 07.03.2019", "7.3.19", "7 mars 2019",
      "jeudi 7 mars 2019", "le 7 mars 19", "7 mars 2019", "07-03-2019", "07 03 2019", "19-03-07", "7 de marzo de 2019",
      "jueves, 7 de marzo de 2019", "marzo 7 de 2019", "el 7 de marzo del 19", "jue 7 mar 2019", "7-III-2019",
      "7-3-2019"};
  ASSERT_EQ(expected.size(), size_t{kFormats});
  for (int format = 0; format < kFormats; ++format)
    EXPECT_EQ(write_date(format, kMarch7th2019), expected[static_cast<size_t>(format)]) << format;
}

TEST(Dates, OrdinalsOfTheWholeMonth) {
  const char* english[] = {"1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th", "9th", "10th", "11th", "12th",
      "13th", "14th", "15th", "16th", "17th", "18th", "19th", "20th", "21st", "22nd", "23rd", "24th", "25th", "26th",
      "27th", "28th", "29th", "30th", "31st"};
  for (int day = 0; day < 31; ++day) EXPECT_EQ(write_date(2, day), std::string(english[day]) + " of January 1970");
  EXPECT_EQ(write_date(14, 0), "1er janvier 1970");
  EXPECT_EQ(write_date(14, 1), "2 janvier 1970");
}

TEST(Dates, CalendarAgreesWithTheSystems) {
  for (int day = 0; day < kDateCount; ++day) {
    const std::time_t seconds = static_cast<std::time_t>(day) * 86400;
    std::tm time{};
    ::gmtime_r(&seconds, &time);
    char text[64];
    std::strftime(text, sizeof text, "%Y-%m-%d", &time);
    ASSERT_EQ(iso_date(day), text);
    std::strftime(text, sizeof text, "%A, %B ", &time);  // the C locale is English
    ASSERT_TRUE(write_date(1, day).starts_with(text)) << write_date(1, day);
  }
  EXPECT_EQ(iso_date(kDateCount - 1), "2069-12-31");
}

TEST(Dates, TwoDigitYearsMean1970To2069) {
  EXPECT_EQ(write_date(6, 0), "1/1/70");
  EXPECT_EQ(iso_date(0), "1970-01-01");
  EXPECT_EQ(write_date(6, kDateCount - 1), "12/31/69");
}

// All 36,525 dates in all formats, spelt right and, for every tenth date, in every allowed misspelling: strings that
// are equal stand for one date.
TEST(Dates, NoWrittenDateHasTwoMeanings) {
  std::vector<std::pair<uint64_t, int>> written;
  const auto add = [&](const std::string& text, int day) { written.emplace_back(std::hash<std::string>{}(text), day); };
  for (int format = 0; format < kFormats; ++format) {
    const bool spelt_out = write_date(format, 0, "?").find('?') != std::string::npos;
    const auto language = static_cast<DateLanguage>(format / 7);
    for (int day = 0; day < kDateCount; ++day) {
      add(write_date(format, day), day);
      if (!spelt_out || day % 10 != 0) continue;
      for (const std::string& word : allowed_misspellings(language, std::stoi(iso_date(day).substr(5, 2))))
        add(write_date(format, day, word), day);
    }
  }
  std::sort(written.begin(), written.end());
  size_t ambiguous = 0;
  for (size_t i = 1; i < written.size(); ++i)
    ambiguous += written[i].first == written[i - 1].first && written[i].second != written[i - 1].second;
  EXPECT_EQ(ambiguous, 0u);
  EXPECT_GT(written.size(), 1'500'000u);
}

TEST(Dates, GeneratedStringsAreUnambiguousToo) {
  std::map<std::string, std::string> meaning;
  for (uint64_t index = 0; index < 300'000; ++index) {
    const DateExample example = make_date(1, DateSplit::kTrain, index);
    ASSERT_EQ(meaning.emplace(example.written, example.iso).first->second, example.iso) << example.written;
    ASSERT_LT(count_code_points(example.written), 40u) << example.written;
    ASSERT_EQ(invalid_utf8_at(example.written), std::string::npos);
  }
}

TEST(Dates, SplitsShareNoDate) {
  int counts[3] = {};
  for (int day = 0; day < kDateCount; ++day) ++counts[static_cast<int>(split_of_date(day))];
  EXPECT_NEAR(counts[0], 0.90 * kDateCount, 200);
  EXPECT_NEAR(counts[1], 0.05 * kDateCount, 130);
  EXPECT_NEAR(counts[2], 0.05 * kDateCount, 130);
  for (const DateSplit split : kSplits) {
    for (uint64_t index = 0; index < 20'000; ++index) {
      const DateExample example = make_date(index % 7, split, index);
      ASSERT_EQ(split_of_date(example.day), split);
      ASSERT_EQ(iso_date(example.day), example.iso);
    }
  }
}

TEST(Dates, UniformOverFormatsWithOneMisspeltMonthInTen) {
  std::vector<int> per_format(kFormats);
  int spelt_out = 0, misspelt = 0;
  std::set<int> years;
  for (uint64_t index = 0; index < 28'000; ++index) {
    const DateExample example = make_date(5, DateSplit::kTest, index);
    ++per_format[static_cast<size_t>(example.format)];
    spelt_out += write_date(example.format, 0, "?").find('?') != std::string::npos;
    misspelt += example.written != write_date(example.format, example.day);
    years.insert(std::stoi(example.iso.substr(0, 4)));
  }
  for (const int count : per_format) EXPECT_EQ(count, 1000);
  EXPECT_EQ(spelt_out, 14'000);
  EXPECT_NEAR(misspelt, 0.1 * spelt_out, 150);
  EXPECT_EQ(years.size(), 100u);
}

// The figures were written down once: a change means that saved runs and published scores no longer compare.
TEST(Dates, TheSameOnEveryMachine) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const DateSplit split : kSplits) {
    for (uint64_t index = 0; index < 5000; ++index) {
      const DateExample example = make_date(42, split, index * index);
      for (const char c : example.written + "\t" + example.iso + "\n")
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    }
  }
  EXPECT_EQ(hash, 11931238440075772341u);
  EXPECT_NE(make_date(1, DateSplit::kTrain, 0).iso, make_date(2, DateSplit::kTrain, 0).iso);
}
}  // namespace
}  // namespace linnet
