#include "onnx/file/symbolic_size.h"

#include <algorithm>

namespace linnet {
namespace {

int64_t product(const std::vector<int>& symbols, std::span<const int64_t> sizes) {
  int64_t result = 1;
  for (const int symbol : symbols) result *= sizes[static_cast<size_t>(symbol)];
  return result;
}

bool fits(const SymbolicSize& size, std::span<const int64_t> values, const SizeSets& sets) {
  for (size_t i = 0; i < values.size(); ++i)
    if (size.at(sets[i]) != values[i]) return false;
  return true;
}

// constant + factor * the product, by the first two sets.
std::optional<SymbolicSize> fit_product(const std::vector<int>& symbols, std::span<const int64_t> values,
                                        const SizeSets& sets) {
  const int64_t first = product(symbols, sets[0]), run = product(symbols, sets[1]) - first;
  const int64_t rise = values[1] - values[0];
  if (run == 0 || rise == 0 || rise % run != 0) return std::nullopt;
  SymbolicSize size;
  size.terms = {{rise / run, symbols}};
  size.constant = values[0] - rise / run * first;
  return fits(size, values, sets) ? std::optional(size) : std::nullopt;
}

}  // namespace

std::optional<int> SymbolicSize::as_symbol() const {
  if (constant != 0 || terms.size() != 1 || terms[0].factor != 1 || terms[0].symbols.size() != 1) return std::nullopt;
  return terms[0].symbols[0];
}

int64_t SymbolicSize::at(std::span<const int64_t> sizes) const {
  int64_t result = constant;
  for (const Term& term : terms) result += term.factor * product(term.symbols, sizes);
  return result;
}

std::string SymbolicSize::text(std::span<const std::string> names) const {
  std::string text;
  for (const Term& term : terms) {
    text += text.empty() ? (term.factor < 0 ? "-" : "") : (term.factor < 0 ? " - " : " + ");
    const int64_t size = term.factor < 0 ? -term.factor : term.factor;
    if (size != 1) text += std::to_string(size) + "*";
    for (size_t i = 0; i < term.symbols.size(); ++i)
      text += (i ? "*" : "") + names[static_cast<size_t>(term.symbols[i])];
  }
  if (constant != 0 || text.empty())
    text += text.empty() ? std::to_string(constant)
                         : (constant < 0 ? " - " : " + ") + std::to_string(constant < 0 ? -constant : constant);
  return text;
}

SymbolicSize operator+(SymbolicSize a, const SymbolicSize& b) {
  a.constant += b.constant;
  for (const SymbolicSize::Term& term : b.terms) {
    const auto same = [&](const SymbolicSize::Term& other) { return other.symbols == term.symbols; };
    const auto found = std::ranges::find_if(a.terms, same);
    if (found == a.terms.end())
      a.terms.push_back(term);
    else
      found->factor += term.factor;
  }
  std::erase_if(a.terms, [](const SymbolicSize::Term& term) { return term.factor == 0; });
  return a;
}

std::optional<SymbolicSize> fit_size(std::span<const int64_t> values, const SizeSets& sets) {
  const auto all_equal = std::ranges::adjacent_find(values, std::not_equal_to<>()) == values.end();
  if (all_equal) return SymbolicSize{values[0]};
  const int count = static_cast<int>(sets[0].size());
  for (int a = 0; a < count; ++a)
    if (const auto size = fit_product({a}, values, sets)) return size;
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) {
      if (a < b)
        if (const auto size = fit_product({a, b}, values, sets)) return size;
      if (a == b) continue;
      for (const int64_t first : {1, 2})
        for (const int64_t second : {1, -1}) {
          SymbolicSize size;
          size.terms = {{first, {a}}, {second, {b}}};
          size.constant = values[0] - size.at(sets[0]);
          if (fits(size, values, sets)) return size;
        }
    }
  return std::nullopt;
}

}  // namespace linnet
