// Einstein summation, of the library and of ONNX: each pair of operands is one matrix product.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "base/fail.h"
#include "base/text.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
class Einsum {
 public:
  // What the caller does in its own way.
  struct Steps {
    std::function<Tensor(Tensor x, const std::vector<int>& order)> permute;
    std::function<Tensor(Tensor x, const std::vector<int>& axes)> sum;
    std::function<void(const std::string& problem)> fail;  // throws
  };

  Einsum(const std::string& equation, const std::vector<Tensor>& operands, Steps steps, SourceLine where)
      : steps_(std::move(steps)), where_(where) {
    parse(equation);
    if (terms_.size() != operands.size())
      fail(terms_.size(), " operands are named, and ", operands.size(), " are given");
    name_rest(operands);
    for (size_t i = 0; i < terms_.size(); ++i) take(terms_[i], operands[i]);
    for (const char letter : result_)
      if (!sizes_.contains(letter)) fail("no operand has the letter ", letter, " of the result");
  }

  Tensor compute() const {
    Term all = terms_[0];
    for (size_t i = 1; i < terms_.size(); ++i) {
      std::string kept = result_;
      for (size_t j = i + 1; j < terms_.size(); ++j) kept += terms_[j].letters;
      all = product(all, terms_[i], kept);
    }
    return ordered(sum_others(all, result_), result_);
  }

 private:
  struct Term {
    Tensor value;
    std::string letters;
  };

  template <class... Parts> void fail(const Parts&... problem) const { steps_.fail(text_of_parts(problem...)); }

  static constexpr char kRest = '*';  // "..."
  static bool has(const std::string& letters, char letter) { return letters.find(letter) != letters.npos; }

  void parse(const std::string& equation) {
    std::string text;
    for (const char c : equation) {
      if (c == kRest) fail("'", c, "' is no letter");
      if (c != ' ') text += c;
    }
    replace_all(text, "...", {&kRest, 1});
    const size_t arrow = text.find("->");
    for (const std::string_view operand : split(std::string_view(text).substr(0, arrow), ',')) {
      std::string& letters = terms_.emplace_back().letters;
      for (const char c : operand) {
        check_letter(c);
        if (has(letters, c)) fail(c == kRest ? "\"...\"" : text_of_parts("the letter ", c), " is twice in one operand");
        letters += c;
      }
    }
    if (arrow != text.npos) {
      for (const char c : text.substr(arrow + 2)) {
        check_letter(c);
        if (has(result_, c)) fail("the letter ", c, " is twice in the result");
        result_ += c;
      }
      return;
    }
    std::map<char, int> counts;
    for (const Term& term : terms_)
      for (const char c : term.letters) ++counts[c];
    for (const auto& [letter, count] : counts)
      if (count == 1 || letter == kRest) result_ += letter;
  }

  // The axes that "..." stands for are called 0, 1 and so on, the last one of each term alike.
  void name_rest(const std::vector<Tensor>& operands) {
    const std::vector<size_t> counts = mapped(terms_.size(), [&](size_t i) {
      const size_t letters = terms_[i].letters.size(), rank = operands[i].shape().rank();
      return has(terms_[i].letters, kRest) && rank + 1 > letters ? rank + 1 - letters : 0;
    });
    const std::string names = std::string("0123456789").substr(0, *std::ranges::max_element(counts));
    const auto name = [](std::string& letters, const std::string& names) {
      if (has(letters, kRest)) letters.replace(letters.find(kRest), 1, names);
    };
    for (size_t i = 0; i < terms_.size(); ++i) name(terms_[i].letters, names.substr(names.size() - counts[i]));
    name(result_, names);
  }

  void check_letter(char c) const {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == kRest;
    if (!letter) fail("'", c, "' is no letter");
  }

  void take(Term& term, Tensor value) {
    term.value = value;
    if (value.shape().rank() != static_cast<int>(term.letters.size()))
      fail("\"", term.letters, "\" stands for ", value.shape());
    for (size_t axis = 0; axis < term.letters.size(); ++axis) {
      const int64_t size = value.dim(static_cast<int>(axis));
      const auto [known, is_new] = sizes_.emplace(term.letters[axis], size);
      const std::string name(1, term.letters[axis]);
      if (!is_new && known->second != size)
        fail(name <= "9" ? "an axis of \"...\"" : "the letter " + name, " is ", known->second, " and ", size);
    }
  }

  // Sums over the letters that are not kept.
  Term sum_others(const Term& term, const std::string& kept) const {
    Term result;
    std::vector<int> axes;
    for (size_t axis = 0; axis < term.letters.size(); ++axis)
      if (has(kept, term.letters[axis])) result.letters += term.letters[axis];
      else axes.push_back(static_cast<int>(axis));
    result.value = axes.empty() ? term.value : steps_.sum(term.value, axes);
    return result;
  }

  Tensor ordered(const Term& term, const std::string& letters) const {
    const auto order = mapped<int>(letters, [&](char letter) { return term.letters.find(letter); });
    return std::ranges::is_sorted(order) ? term.value : steps_.permute(term.value, order);
  }

  int64_t size_of(const std::string& letters) const {
    int64_t size = 1;
    for (const char letter : letters) size *= sizes_.at(letter);
    return size;
  }

  // [both and kept, rows of a, summed] times [both and kept, summed, columns of b].
  Term product(const Term& given_a, const Term& given_b, const std::string& kept) const {
    const Term a = sum_others(given_a, kept + given_b.letters), b = sum_others(given_b, kept + given_a.letters);
    std::string both, summed, rows, columns;
    for (const char letter : a.letters) (!has(b.letters, letter) ? rows : has(kept, letter) ? both : summed) += letter;
    for (const char letter : b.letters)
      if (!has(a.letters, letter)) columns += letter;
    const auto as_matrix = [&](const Term& term, const std::string& first, const std::string& second) {
      return reshape(
          At(ordered(term, both + first + second), where_), {size_of(both), size_of(first), size_of(second)});
    };
    const Tensor product = matmul(At(as_matrix(a, rows, summed), where_), as_matrix(b, summed, columns));
    const std::string letters = both + rows + columns;
    if (letters.size() > kMaxRank) fail("an intermediate result has more than ", kMaxRank, " axes");
    const Shape shape(mapped(letters, [&](char letter) { return sizes_.at(letter); }));
    return {reshape(At(product, where_), shape), letters};
  }

  const Steps steps_;
  const SourceLine where_;
  std::vector<Term> terms_;
  std::string result_;
  std::map<char, int64_t> sizes_;
};
}  // namespace linnet
