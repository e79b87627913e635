// The built-in task `dates`: written dates in four languages -> ISO 8601, "Thursday, March 7, 2019" -> "2019-03-07".
//
// Examples are random access and the same on every machine: all randomness is integer arithmetic on (seed, split,
// index). Dates run from 1970-01-01 to 2069-12-31, which is the window of two-digit years: 70..99 are 1970..1999 and
// 00..69 are 2000..2069. A hash of the date alone, whatever the seed, decides its split, so no date of the test split
// is ever seen in training.
//
// No written string stands for two dates:
// - Numbers: the separator and the place of the year fix the order of the fields.
//     3/7/2019    3/7/19        month/day/year          07-03-2019  7-3-2019   day-month-year
//     07.03.2019  7.3.19        day.month.year          19-03-07               year-month-day, two digits each
//     07 03 2019                day month year          7-III-2019             the Roman numeral is the month
// - Words: the word is the month; a year has four digits, or two and comes last; what is left is the day.
// - A misspelt month can only mean one month in any language (allowed_misspellings() in dates.cpp).
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
  bool misspelt = false;
};

int date_format_count();                // equally many for each language
std::string date_language(int format);  // "en" | "de" | "fr" | "es"

// Example `index` of a split. Its format is index % date_format_count(), so any run of examples is uniform over formats
// and languages; its date is drawn from the split's dates. One in ten of the full month names is misspelt.
DateExample make_date(uint64_t seed, DateSplit split, uint64_t index);

// One date as a format writes it, with its month in the spelling given or, where that is empty, in the right one.
std::string write_date(int format, int day, const std::string& month_spelling = "");
std::string iso_date(int day);
DateSplit split_of_date(int day);

// Names of months and weekdays in the four languages of the `dates` task, and how months may be misspelt.

enum class DateLanguage { kEnglish, kGerman, kFrench, kSpanish };
constexpr int kDateLanguageCount = 4;
constexpr int kMonthCount = 12;

// Spelt and capitalised as in running text; weekdays from Sunday on.
struct DateNames {
  const char* code;  // "en" | "de" | "fr" | "es"
  const char* months[kMonthCount];
  const char* month_abbreviations[kMonthCount];
  const char* weekdays[7];
  const char* weekday_abbreviations[7];
};
const DateNames& date_names(DateLanguage language);

// The closed set of misspellings of a month's full name: two neighboring letters swapped, one dropped or one doubled,
// the first letter never touched. Each is two edits or more (insert, delete, replace, swap neighbors) from every name
// and abbreviation of any other month in any of the languages, so it can mean its own month only; "juno" is one, for
// Spanish "junio", and "juio", as near to "julio", is not. None is itself a name or an abbreviation.
const std::vector<std::string>& allowed_misspellings(DateLanguage language, int month);

}  // namespace linnet
