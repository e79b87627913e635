// Einstein summation: each pair of operands is one matrix product.
#include <algorithm>
#include <map>
#include "api/cpp/helpers.h"
#include "base/error.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "linnet/math.h"

namespace linnet {
namespace {
struct Term {
  Tensor value;
  std::string letters;
};

bool has(const std::string& letters, char letter) { return letters.find(letter) != letters.npos; }

class Einsum {
 public:
  Einsum(const std::string& equation, const std::vector<Tensor>& operands, SourceLine where)
      : equation_(equation), where_(where) {
    parse();
    if (terms_.size() != operands.size())
      fail(terms_.size(), " operands are named, and ", operands.size(), " are given");
    for (size_t i = 0; i < terms_.size(); ++i) take(terms_[i], operands[i]);
    for (const char letter : result_)
      if (!sizes_.contains(letter)) fail("no operand has the letter ", letter, " of the result");
  }

  Tensor compute() {
    Term all = terms_[0];
    for (size_t i = 1; i < terms_.size(); ++i) {
      std::string kept = result_;
      for (size_t j = i + 1; j < terms_.size(); ++j) kept += terms_[j].letters;
      all = product(all, terms_[i], kept);
    }
    return ordered(sum_others(all, result_), result_).value;
  }

 private:
  template <class... Parts> [[noreturn]] void fail(const Parts&... problem) const {
    fail_shape(where_, "einsum(\"", equation_, "\"): ", problem...);
  }

  void parse() {
    std::string text;
    for (const char c : equation_)
      if (c != ' ') text += c;
    const size_t arrow = text.find("->");
    terms_.emplace_back();
    for (const char c : text.substr(0, arrow)) {
      if (c == ',') {
        terms_.emplace_back();
        continue;
      }
      check_letter(c);
      if (has(terms_.back().letters, c)) fail("the letter ", c, " is twice in one operand");
      terms_.back().letters += c;
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
      if (count == 1) result_ += letter;
  }

  void check_letter(char c) const {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter) fail("'", c, "' is no letter");
  }

  void take(Term& term, Tensor value) {
    term.value = value;
    if (value.shape().rank() != static_cast<int>(term.letters.size()))
      fail("\"", term.letters, "\" stands for ", value.shape());
    for (size_t axis = 0; axis < term.letters.size(); ++axis) {
      const int64_t size = value.dim(static_cast<int>(axis));
      const auto [known, is_new] = sizes_.emplace(term.letters[axis], size);
      if (!is_new && known->second != size)
        fail("the letter ", term.letters[axis], " is ", known->second, " and ", size);
    }
  }

  At at(Tensor value) const { return At(value, where_); }

  // Sums over the letters that are not kept.
  Term sum_others(const Term& term, const std::string& kept) const {
    Term result;
    std::vector<int> axes;
    for (size_t axis = 0; axis < term.letters.size(); ++axis)
      if (has(kept, term.letters[axis])) result.letters += term.letters[axis];
      else axes.push_back(static_cast<int>(axis));
    result.value = axes.empty() ? term.value : sum(at(term.value), axes);
    return result;
  }

  Term ordered(const Term& term, const std::string& letters) const {
    std::vector<int> order;
    for (const char letter : letters) order.push_back(static_cast<int>(term.letters.find(letter)));
    return {std::ranges::is_sorted(order) ? term.value : permute(at(term.value), order), letters};
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
      const Tensor value = ordered(term, both + first + second).value;
      return reshape(at(value), {size_of(both), size_of(first), size_of(second)});
    };
    const Tensor product = matmul(at(as_matrix(a, rows, summed)), as_matrix(b, summed, columns));
    Term result{.value = {}, .letters = both + rows + columns};
    Shape shape;
    for (const char letter : result.letters) shape.push_back(sizes_.at(letter));
    result.value = reshape(at(product), shape);
    return result;
  }

  const std::string equation_;
  const SourceLine where_;
  std::vector<Term> terms_;
  std::string result_;
  std::map<char, int64_t> sizes_;
};
}  // namespace

Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands, SourceLine where) {
  return Einsum(equation, operands, where).compute();
}
}  // namespace linnet
