// The built-in task `dates`: written dates in four languages -> ISO 8601, "Thursday, March 7, 2019" -> "2019-03-07".
//
// Examples are random access and the same on every machine: integer arithmetic on (seed, split, index). Dates run from
// 1970-01-01 to 2069-12-31, the window of two-digit years. A hash of the date alone, whatever the seed, decides its
// split, so no test date is seen in training.
//
// No written string has two meanings:
// - Numbers: the separator and the position of the year fix the order of the fields.
//     3/7/2019    3/7/19        month/day/year          07-03-2019  7-3-2019   day-month-year
//     07.03.2019  7.3.19        day.month.year          19-03-07               year-month-day, two digits each
//     07 03 2019                day month year          7-III-2019             the Roman numeral is the month
// - Words: the word is the month; a year has four digits, or has two and comes last; the rest is the day.
// - A misspelt month matches one month in all languages (allowed_misspellings() in dates.cpp).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace linnet {
constexpr int kDateCount = 36525;  // days from 1970-01-01 (number 0) to 2069-12-31

enum class DateSplit { kTrain, kValid, kTest };  // 90%, 5% and 5% of the dates

struct DateExample {
  std::string written;  // fewer than 40 characters, UTF-8
  std::string iso;      // yyyy-mm-dd
  int format = 0;
  int day = 0;  // the date's number
};

// Example `index` of a split. Its format is index % 28, so consecutive examples are uniform over formats and languages;
// its date is drawn from the split's dates. One in ten full month names is misspelt.
DateExample make_date(uint64_t seed, DateSplit split, uint64_t index);

// A date in a format. An empty month_spelling stands for the right one.
std::string write_date(int format, int day, const std::string& month_spelling = "");
std::string iso_date(int day);
DateSplit split_of_date(int day);

enum class DateLanguage { kEnglish, kGerman, kFrench, kSpanish };
constexpr int kDateLanguageCount = 4;
constexpr int kMonthCount = 12;

// As in running text; weekdays from Sunday on.
struct DateNames {
  const char* months[kMonthCount];
  const char* month_abbreviations[kMonthCount];
  const char* weekdays[7];
  const char* weekday_abbreviations[7];
};
const DateNames& date_names(DateLanguage language);

// The misspellings of a month's full name: two neighboring letters swapped, one dropped or one doubled, but not the
// first letter. Each is at least two edits (insert, delete, replace, swap neighbors) from every name and abbreviation
// of other months in all languages: "juno" is one, for Spanish "junio", and "juio", as near to "julio", is not. None is
// a name or an abbreviation.
const std::vector<std::string>& allowed_misspellings(DateLanguage language, int month);
}  // namespace linnet
