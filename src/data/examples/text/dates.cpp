#include "data/examples/text/dates.h"

#include <array>
#include <iterator>
#include <vector>

#include "base/hash.h"
#include "data/examples/text/date_names.h"

namespace linnet {
namespace {

// %W %w weekday, full and short; %M %m month, full and short; %R month as a Roman numeral; %N %n month number, two
// digits and plain; %D %d day, two digits and plain; %o day as an ordinal; %Y %y year, four digits and two.
struct Format {
  DateLanguage language;
  const char* name;
  const char* pattern;
};

constexpr DateLanguage kEn = DateLanguage::kEnglish, kDe = DateLanguage::kGerman, kFr = DateLanguage::kFrench,
                       kEs = DateLanguage::kSpanish;

// A new numeric format needs a place in the list at the top of dates.h: its own separator, or the same order of fields
// as the others that use the separator.
constexpr Format kFormats[] = {
    {kEn, "month day, year", "%M %d, %Y"},
    {kEn, "weekday, month day, year", "%W, %M %d, %Y"},
    {kEn, "ordinal of month year", "%o of %M %Y"},
    {kEn, "short weekday day short month year", "%w %d %m %Y"},
    {kEn, "month ordinal, 'yy", "%M %o, '%y"},
    {kEn, "m/d/yyyy", "%n/%d/%Y"},
    {kEn, "m/d/yy", "%n/%d/%y"},

    {kDe, "day. month year", "%d. %M %Y"},
    {kDe, "weekday, der day. month year", "%W, der %d. %M %Y"},
    {kDe, "short weekday, day. short month year", "%w, %d. %m %Y"},
    {kDe, "am day. month 'yy", "am %d. %M '%y"},
    {kDe, "dd.mm.yyyy", "%D.%N.%Y"},
    {kDe, "weekday, dd.mm.yyyy", "%W, %D.%N.%Y"},
    {kDe, "d.m.yy", "%d.%n.%y"},

    {kFr, "day month year", "%o %M %Y"},
    {kFr, "weekday day month year", "%W %o %M %Y"},
    {kFr, "le day month yy", "le %o %M %y"},
    {kFr, "day short month year", "%d %m %Y"},
    {kFr, "dd-mm-yyyy", "%D-%N-%Y"},
    {kFr, "dd mm yyyy", "%D %N %Y"},
    {kFr, "yy-mm-dd", "%y-%N-%D"},

    {kEs, "day de month de year", "%d de %M de %Y"},
    {kEs, "weekday, day de month de year", "%W, %d de %M de %Y"},
    {kEs, "month day de year", "%M %d de %Y"},
    {kEs, "el day de month del yy", "el %d de %M del %y"},
    {kEs, "short weekday day short month year", "%w %d %m %Y"},
    {kEs, "day-Roman month-year", "%d-%R-%Y"},
    {kEs, "d-m-yyyy", "%d-%n-%Y"},
};
constexpr int kFormatCount = static_cast<int>(std::size(kFormats));
static_assert(kFormatCount % kDateLanguageCount == 0);

constexpr int kMisspeltPercent = 10;

const Format& format_at(int format) { return kFormats[static_cast<size_t>(format)]; }

struct Date {
  int year, month, day, weekday;  // month and day from 1, weekday from 0, Sunday
};

bool is_leap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

Date date_of(int number) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  Date date{1970, 1, 1, (number + 4) % 7};  // 1970-01-01 was a Thursday
  for (int length; number >= (length = is_leap(date.year) ? 366 : 365); ++date.year) number -= length;
  for (int length; number >= (length = kDays[date.month - 1] + (date.month == 2 && is_leap(date.year))); ++date.month)
    number -= length;
  date.day += number;
  return date;
}

std::string two_digits(int value) { return {static_cast<char>('0' + value / 10), static_cast<char>('0' + value % 10)}; }

std::string ordinal(DateLanguage language, int day) {
  if (language == kFr) return day == 1 ? "1er" : std::to_string(day);
  const bool teen = day >= 11 && day <= 13;
  const char* ending = teen || day % 10 > 3 || day % 10 == 0 ? "th"
                       : day % 10 == 1                       ? "st"
                       : day % 10 == 2                       ? "nd"
                                                             : "rd";
  return std::to_string(day) + ending;
}

std::string field(char letter, DateLanguage language, const Date& date, const std::string& month_spelling) {
  static constexpr const char* kRoman[] = {"I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"};
  switch (letter) {
    case 'W':
      return weekday_name(language, date.weekday);
    case 'w':
      return weekday_abbreviation(language, date.weekday);
    case 'M':
      return month_spelling.empty() ? month_name(language, date.month) : month_spelling;
    case 'm':
      return month_abbreviation(language, date.month);
    case 'R':
      return kRoman[date.month - 1];
    case 'N':
      return two_digits(date.month);
    case 'n':
      return std::to_string(date.month);
    case 'D':
      return two_digits(date.day);
    case 'd':
      return std::to_string(date.day);
    case 'o':
      return ordinal(language, date.day);
    case 'Y':
      return std::to_string(date.year);
    default:
      return two_digits(date.year % 100);
  }
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

const std::vector<int>& days_of(DateSplit split) {
  static const std::array<std::vector<int>, 3> days = [] {
    std::array<std::vector<int>, 3> result;
    for (int day = 0; day < kDateCount; ++day) result[static_cast<size_t>(split_of_date(day))].push_back(day);
    return result;
  }();
  return days[static_cast<size_t>(split)];
}

}  // namespace

int date_format_count() { return kFormatCount; }

std::string date_language(int format) { return language_code(format_at(format).language); }

std::string date_format_name(int format) { return date_language(format) + ": " + format_at(format).name; }

DateSplit split_of_date(int day) {
  const uint64_t share = mix64(static_cast<uint64_t>(day) * kGolden + kGolden) % 20;
  return share == 0 ? DateSplit::kValid : share == 1 ? DateSplit::kTest : DateSplit::kTrain;
}

std::string iso_date(int day) {
  const Date date = date_of(day);
  return std::to_string(date.year) + "-" + two_digits(date.month) + "-" + two_digits(date.day);
}

std::string write_date(int format, int day, const std::string& month_spelling) {
  const Date date = date_of(day);
  std::string text;
  for (const char* p = format_at(format).pattern; *p != '\0'; ++p) {
    if (*p == '%')
      text += field(*++p, format_at(format).language, date, month_spelling);
    else
      text += *p;
  }
  return text;
}

DateExample make_date(uint64_t seed, DateSplit split, uint64_t index) {
  uint64_t state = mix64(mix64(mix64(seed + kGolden) + static_cast<uint64_t>(split)) + index);
  const auto draw = [&](uint64_t below) { return mix64(state += kGolden) % below; };

  DateExample example;
  example.format = static_cast<int>(index % kFormatCount);
  const std::vector<int>& days = days_of(split);
  example.day = days[draw(days.size())];
  example.iso = iso_date(example.day);

  const Format& format = format_at(example.format);
  std::string spelling;
  if (std::string(format.pattern).find("%M") != std::string::npos && draw(100) < kMisspeltPercent) {
    const std::vector<std::string>& choices = allowed_misspellings(format.language, date_of(example.day).month);
    if (!choices.empty()) spelling = choices[draw(choices.size())];
  }
  example.misspelt = !spelling.empty();
  example.written = write_date(example.format, example.day, spelling);
  return example;
}

}  // namespace linnet
