#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include <set>
#include "data/examples/text/dates.h"

namespace linnet {
namespace {
constexpr DateLanguage kLanguages[] = {
    DateLanguage::kEnglish, DateLanguage::kGerman, DateLanguage::kFrench, DateLanguage::kSpanish};

// The names use these letters beside ASCII; one byte each, so that an edit of a letter is an edit of a byte.
std::string fold(std::string word) {
  const std::pair<const char*, const char*> letters[] = {{"ä", "1"}, {"é", "2"}, {"û", "3"}, {".", ""}};
  for (const auto& [letter, byte] : letters)
    for (size_t at; (at = word.find(letter)) != std::string::npos;) word.replace(at, std::string(letter).size(), byte);
  for (char& c : word) c = static_cast<char>(std::tolower(c));
  return word;
}

// Every string at most one edit from `word`, by enumeration.
std::set<std::string> neighbors(const std::string& word) {
  std::set<std::string> found = {word};
  const std::string alphabet = "abcdefghijklmnopqrstuvwxyz123";
  for (size_t i = 0; i <= word.size(); ++i) {
    for (const char c : alphabet) {
      found.insert(word.substr(0, i) + c + word.substr(i));
      if (i < word.size()) found.insert(word.substr(0, i) + c + word.substr(i + 1));
    }
    if (i < word.size()) found.insert(word.substr(0, i) + word.substr(i + 1));
    if (i + 1 < word.size()) found.insert(word.substr(0, i) + word[i + 1] + word[i] + word.substr(i + 2));
  }
  return found;
}

TEST(DateNames, AMisspellingCanMeanOneMonthOnly) {
  std::map<std::string, std::set<int>> months_near;  // string -> months with a name within one edit
  std::set<std::string> names;
  for (const DateLanguage language : kLanguages) {
    for (int month = 1; month <= kMonthCount; ++month) {
      const DateNames& own = date_names(language);
      for (const std::string& name : {fold(own.months[month - 1]), fold(own.month_abbreviations[month - 1])}) {
        names.insert(name);
        for (const std::string& near : neighbors(name)) months_near[near].insert(month);
      }
    }
  }
  for (const DateLanguage language : kLanguages) {
    for (int month = 1; month <= kMonthCount; ++month) {
      const std::vector<std::string>& misspellings = allowed_misspellings(language, month);
      EXPECT_FALSE(misspellings.empty()) << date_names(language).months[month - 1];
      for (const std::string& word : misspellings) {
        EXPECT_EQ(months_near[fold(word)], std::set<int>{month}) << word;
        EXPECT_FALSE(names.contains(fold(word))) << word;
        EXPECT_EQ(word[0], date_names(language).months[month - 1][0]) << word;
      }
      EXPECT_EQ(std::set<std::string>(misspellings.begin(), misspellings.end()).size(), misspellings.size());
    }
  }
}

TEST(DateNames, NeighboringMonthsLoseTheirAmbiguousMisspellings) {
  const auto has = [](DateLanguage language, int month, const std::string& word) {
    const auto& all = allowed_misspellings(language, month);
    return std::find(all.begin(), all.end(), word) != all.end();
  };
  EXPECT_TRUE(has(DateLanguage::kEnglish, 2, "Febuary"));
  EXPECT_TRUE(has(DateLanguage::kGerman, 3, "Määrz"));
  EXPECT_TRUE(has(DateLanguage::kSpanish, 6, "juno"));
  EXPECT_FALSE(has(DateLanguage::kSpanish, 6, "juio"));  // junio or julio
  EXPECT_FALSE(has(DateLanguage::kSpanish, 7, "juio"));
  EXPECT_FALSE(has(DateLanguage::kGerman, 6, "Jui"));  // Juni, Juli, juin
  EXPECT_FALSE(has(DateLanguage::kGerman, 7, "Jul"));  // an abbreviation, not a misspelling
  EXPECT_FALSE(has(DateLanguage::kFrench, 3, "mas"));  // mars, mais, mai
  EXPECT_FALSE(has(DateLanguage::kFrench, 5, "ma"));
}
}  // namespace
}  // namespace linnet
