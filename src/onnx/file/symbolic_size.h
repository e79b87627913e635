// Sizes of a graph that depend on the sizes it is traced at. Graphs have fixed shapes; a model that is traced at
// several sets of sizes tells which of its numbers follow which size.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace linnet {

// constant + the sum of factor * symbol [* symbol] over the terms. Symbols are numbered.
struct SymbolicSize {
  struct Term {
    int64_t factor;
    std::vector<int> symbols;  // one or two, sorted
    bool operator==(const Term&) const = default;
  };
  int64_t constant = 0;
  std::vector<Term> terms = {};

  bool is_constant() const { return terms.empty(); }
  std::optional<int> as_symbol() const;  // it is that symbol and nothing more
  int64_t at(std::span<const int64_t> symbols) const;
  std::string text(std::span<const std::string> names) const;  // "past_length + length"
  bool operator==(const SymbolicSize&) const = default;
};

SymbolicSize operator+(SymbolicSize a, const SymbolicSize& b);

using SymbolicShape = std::vector<SymbolicSize>;

// One set of sizes for each trace, one number for each symbol. The sets must differ in all symbols.
using SizeSets = std::vector<std::vector<int64_t>>;

// The simplest of these forms that gives values[i] at sets[i] for all of them: a constant; constant + factor * symbol;
// constant + factor * symbol * symbol; constant + (once or twice) a symbol, plus or minus another. Empty: none does.
std::optional<SymbolicSize> fit_size(std::span<const int64_t> values, const SizeSets& sets);

}  // namespace linnet
