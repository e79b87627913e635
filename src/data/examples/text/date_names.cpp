#include "data/examples/text/date_names.h"

#include <algorithm>
#include <array>

#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

struct LanguageNames {
  const char* code;
  const char* months[kMonthCount];
  const char* month_abbreviations[kMonthCount];
  const char* weekdays[7];
  const char* weekday_abbreviations[7];
};

constexpr LanguageNames kNames[kDateLanguageCount] = {
    {"en",
     {"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
      "December"},
     {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"},
     {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"},
     {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}},
    {"de",
     {"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November",
      "Dezember"},
     {"Jan.", "Feb.", "Mär.", "Apr.", "Mai", "Jun.", "Jul.", "Aug.", "Sep.", "Okt.", "Nov.", "Dez."},
     {"Sonntag", "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag"},
     {"So", "Mo", "Di", "Mi", "Do", "Fr", "Sa"}},
    {"fr",
     {"janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre",
      "décembre"},
     {"janv.", "févr.", "mars", "avr.", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."},
     {"dimanche", "lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi"},
     {"dim.", "lun.", "mar.", "mer.", "jeu.", "ven.", "sam."}},
    {"es",
     {"enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre", "octubre", "noviembre",
      "diciembre"},
     {"ene", "feb", "mar", "abr", "may", "jun", "jul", "ago", "sep", "oct", "nov", "dic"},
     {"domingo", "lunes", "martes", "miércoles", "jueves", "viernes", "sábado"},
     {"dom", "lun", "mar", "mié", "jue", "vie", "sáb"}},
};

const LanguageNames& names_of(DateLanguage language) { return kNames[static_cast<size_t>(language)]; }

// Lower case without a full stop: what misspellings are compared by.
std::u32string letters_of(const std::string& name) {
  std::u32string letters;
  for (size_t i = 0; i < name.size(); i += utf8_length_at(name, i)) {
    const char32_t c = utf8_code_point_at(name, i);
    if (c != U'.') letters += c >= U'A' && c <= U'Z' ? c + 32 : c;
  }
  return letters;
}

// Optimal string alignment distance: the fewest insertions, deletions, replacements and swaps of neighbours.
size_t edit_distance(const std::u32string& a, const std::u32string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

bool means_only(const std::u32string& word, int month) {
  for (const LanguageNames& names : kNames) {
    for (int other = 1; other <= kMonthCount; ++other) {
      for (const char* name : {names.months[other - 1], names.month_abbreviations[other - 1]}) {
        const size_t distance = edit_distance(word, letters_of(name));
        if (distance == 0 || (other != month && distance < 2)) return false;
      }
    }
  }
  return true;
}

std::vector<std::string> find_misspellings(const std::string& name, int month) {
  const std::vector<std::string_view> letters = split_code_points(name);
  std::vector<std::string> found;
  const auto consider = [&](const std::vector<std::string_view>& edited) {
    std::string word;
    for (const std::string_view letter : edited) word += letter;
    if (word != name && means_only(letters_of(word), month)) found.push_back(word);
  };
  for (size_t i = 1; i < letters.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    std::vector<std::string_view> edited = letters;
    edited.insert(edited.begin() + at, letters[i]);
    consider(edited);
    edited = letters;
    edited.erase(edited.begin() + at);
    consider(edited);
    if (i + 1 == letters.size()) break;
    edited = letters;
    std::swap(edited[i], edited[i + 1]);
    consider(edited);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace

std::string language_code(DateLanguage language) { return names_of(language).code; }

std::string month_name(DateLanguage language, int month) { return names_of(language).months[month - 1]; }

std::string month_abbreviation(DateLanguage language, int month) {
  return names_of(language).month_abbreviations[month - 1];
}

std::string weekday_name(DateLanguage language, int weekday) { return names_of(language).weekdays[weekday]; }

std::string weekday_abbreviation(DateLanguage language, int weekday) {
  return names_of(language).weekday_abbreviations[weekday];
}

const std::vector<std::string>& allowed_misspellings(DateLanguage language, int month) {
  using Table = std::array<std::array<std::vector<std::string>, kMonthCount>, kDateLanguageCount>;
  static const Table table = [] {
    Table result;
    for (size_t l = 0; l < kDateLanguageCount; ++l)
      for (int m = 1; m <= kMonthCount; ++m)
        result[l][static_cast<size_t>(m - 1)] = find_misspellings(kNames[l].months[m - 1], m);
    return result;
  }();
  return table[static_cast<size_t>(language)][static_cast<size_t>(month - 1)];
}

}  // namespace linnet
