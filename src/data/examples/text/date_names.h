// Names of months and weekdays in the four languages of the `dates` task, and how months may be misspelt.
#pragma once
#include <string>
#include <vector>

namespace linnet {

enum class DateLanguage { kEnglish, kGerman, kFrench, kSpanish };
constexpr int kDateLanguageCount = 4;
constexpr int kMonthCount = 12;

std::string language_code(DateLanguage language);  // "en" | "de" | "fr" | "es"

// Spelt and capitalised as in running text. month counts from 1; weekday from 0, Sunday.
std::string month_name(DateLanguage language, int month);
std::string month_abbreviation(DateLanguage language, int month);
std::string weekday_name(DateLanguage language, int weekday);
std::string weekday_abbreviation(DateLanguage language, int weekday);

// The closed set of misspellings of a month's full name: two neighbouring letters swapped, one dropped or one doubled,
// the first letter never touched. Each is two edits or more (insert, delete, replace, swap neighbours) from every name
// and abbreviation of any other month in any of the languages, so it can mean its own month only; "juno" is one, for
// Spanish "junio", and "juio", as near to "julio", is not. None is itself a name or an abbreviation.
const std::vector<std::string>& allowed_misspellings(DateLanguage language, int month);

}  // namespace linnet
