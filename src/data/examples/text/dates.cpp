#include "data/examples/text/dates.h"
#include <algorithm>
#include <array>
#include <chrono>
#include "base/numbers.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
// %W %w weekday, full and short; %M %m month, full and short; %R month as a Roman numeral; %N %n month number, two
// digits and plain; %D %d day, two digits and plain; %o day as an ordinal; %Y %y year, four digits and two.
//
// A new numeric format must be added to the list in dates.h, with its own separator or that separator's order.
constexpr int kFormatsOfLanguage = 7, kFormatCount = kDateLanguageCount * kFormatsOfLanguage;
constexpr const char* kFormats[kDateLanguageCount][kFormatsOfLanguage] = {
    {"%M %d, %Y", "%W, %M %d, %Y", "%o of %M %Y", "%w %d %m %Y", "%M %o, '%y", "%n/%d/%Y", "%n/%d/%y"},
    {"%d. %M %Y", "%W, der %d. %M %Y", "%w, %d. %m %Y", "am %d. %M '%y", "%D.%N.%Y", "%W, %D.%N.%Y", "%d.%n.%y"},
    {"%o %M %Y", "%W %o %M %Y", "le %o %M %y", "%d %m %Y", "%D-%N-%Y", "%D %N %Y", "%y-%N-%D"},
    {"%d de %M de %Y", "%W, %d de %M de %Y", "%M %d de %Y", "el %d de %M del %y", "%w %d %m %Y", "%d-%R-%Y",
        "%d-%n-%Y"},
};

DateLanguage language_of(int format) { return static_cast<DateLanguage>(format / kFormatsOfLanguage); }
const char* pattern_of(int format) { return kFormats[format / kFormatsOfLanguage][format % kFormatsOfLanguage]; }

constexpr int kMisspeltPercent = 10;

struct Date {
  int year, month, day, weekday;  // month and day from 1, weekday from 0, Sunday
};

Date date_of(int number) {
  const std::chrono::sys_days day{std::chrono::days{number}};
  const std::chrono::year_month_day date{day};
  return {static_cast<int>(date.year()), static_cast<int>(static_cast<unsigned>(date.month())),
      static_cast<int>(static_cast<unsigned>(date.day())), static_cast<int>(std::chrono::weekday{day}.c_encoding())};
}

std::string two_digits(int value) { return {static_cast<char>('0' + value / 10), static_cast<char>('0' + value % 10)}; }

std::string ordinal(DateLanguage language, int day) {
  if (language == DateLanguage::kFrench) return day == 1 ? "1er" : std::to_string(day);
  const bool teen = day >= 11 && day <= 13;
  const char* ending = teen || day % 10 > 3 || day % 10 == 0 ? "th"
                       : day % 10 == 1                       ? "st"
                       : day % 10 == 2                       ? "nd"
                                                             : "rd";
  return std::to_string(day) + ending;
}

std::string field(char letter, DateLanguage language, const Date& date, const std::string& month_spelling) {
  static constexpr const char* kRoman[] = {"I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"};
  const DateNames& names = date_names(language);
  switch (letter) {
    case 'W': return names.weekdays[date.weekday];
    case 'w': return names.weekday_abbreviations[date.weekday];
    case 'M': return month_spelling.empty() ? names.months[date.month - 1] : month_spelling;
    case 'm': return names.month_abbreviations[date.month - 1];
    case 'R': return kRoman[date.month - 1];
    case 'N': return two_digits(date.month);
    case 'n': return std::to_string(date.month);
    case 'D': return two_digits(date.day);
    case 'd': return std::to_string(date.day);
    case 'o': return ordinal(language, date.day);
    case 'Y': return std::to_string(date.year);
    default: return two_digits(date.year % 100);
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

constexpr DateNames kNames[kDateLanguageCount] = {
    {{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
         "December"},
        {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"},
        {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"},
        {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}},
    {{"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November",
         "Dezember"},
        {"Jan.", "Feb.", "Mär.", "Apr.", "Mai", "Jun.", "Jul.", "Aug.", "Sep.", "Okt.", "Nov.", "Dez."},
        {"Sonntag", "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag"},
        {"So", "Mo", "Di", "Mi", "Do", "Fr", "Sa"}},
    {{"janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre",
         "décembre"},
        {"janv.", "févr.", "mars", "avr.", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."},
        {"dimanche", "lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi"},
        {"dim.", "lun.", "mar.", "mer.", "jeu.", "ven.", "sam."}},
    {{"enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre", "octubre", "noviembre",
         "diciembre"},
        {"ene", "feb", "mar", "abr", "may", "jun", "jul", "ago", "sep", "oct", "nov", "dic"},
        {"domingo", "lunes", "martes", "miércoles", "jueves", "viernes", "sábado"},
        {"dom", "lun", "mar", "mié", "jue", "vie", "sáb"}},
};

// Lowercase without periods: what misspellings are compared by.
std::u32string letters_of(const std::string& name) {
  std::u32string letters;
  for (const Utf8Character& character : utf8_characters(name)) {
    const char32_t c = character.code_point();
    if (c != U'.') letters += c >= U'A' && c <= U'Z' ? c + 32 : c;
  }
  return letters;
}

bool means_only(const std::u32string& word, int month) {
  for (const DateNames& names : kNames) {
    for (int other = 1; other <= kMonthCount; ++other) {
      for (const char* name : {names.months[other - 1], names.month_abbreviations[other - 1]}) {
        const int distance = edit_distance<char32_t>(word, letters_of(name));
        if (distance == 0 || (other != month && distance < 2)) return false;
      }
    }
  }
  return true;
}

std::vector<std::string> find_misspellings(const std::string& name, int month) {
  const std::vector<std::string_view> letters = split_code_points(name);
  std::vector<std::string> found;
  const auto consider = [&](const auto& edit) {
    std::vector<std::string_view> edited = letters;
    edit(edited);
    const std::string word = joined(edited, "");
    if (word != name && means_only(letters_of(word), month)) found.push_back(word);
  };
  for (size_t i = 1; i < letters.size(); ++i) {
    consider([&](auto& word) { word.insert(word.begin() + i, letters[i]); });
    consider([&](auto& word) { word.erase(word.begin() + i); });
    if (i + 1 < letters.size()) consider([&](auto& word) { std::swap(word[i], word[i + 1]); });
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}
}  // namespace

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
  for (const char* p = pattern_of(format); *p != '\0'; ++p) {
    if (*p == '%') text += field(*++p, language_of(format), date, month_spelling);
    else text += *p;
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
  std::string spelling;
  if (std::string_view(pattern_of(example.format)).find("%M") != std::string_view::npos &&
      draw(100) < kMisspeltPercent) {
    const std::vector<std::string>& choices =
        allowed_misspellings(language_of(example.format), date_of(example.day).month);
    if (!choices.empty()) spelling = choices[draw(choices.size())];
  }
  example.written = write_date(example.format, example.day, spelling);
  return example;
}

const DateNames& date_names(DateLanguage language) { return kNames[static_cast<size_t>(language)]; }

const std::vector<std::string>& allowed_misspellings(DateLanguage language, int month) {
  using Table = std::array<std::array<std::vector<std::string>, kMonthCount>, kDateLanguageCount>;
  static const Table table = [] {
    Table result;
    for (size_t l = 0; l < kDateLanguageCount; ++l)
      for (int m = 1; m <= kMonthCount; ++m) result[l][m - 1] = find_misspellings(kNames[l].months[m - 1], m);
    return result;
  }();
  return table[static_cast<size_t>(language)][month - 1];
}
}  // namespace linnet
