#include <cmath>
#include <map>
#include "base/numbers.h"
#include "base/text.h"
#include "generation/json_texts.h"

namespace linnet {
namespace {
constexpr int kMostDigits = 15;

// The digits of a limit without its sign; behind them are zeros.
struct Bound {
  std::string digits;
  size_t whole;  // before the point
  bool is_open;

  Bound(const NumberLimit& limit, bool is_low) : is_open(limit.is_open) {
    const double value = std::abs(limit.value);
    for (int places = 0; places <= kMostDigits && (places == 0 || parse_finite(digits) != value); ++places)
      digits = printed("%.*f", places, value);
    // Rounded outward, it is beyond the limit.
    if (is_low ? parse_finite(digits) < value : parse_finite(digits) > value) is_open = true;
    whole = std::min(digits.find('.'), digits.size());
    if (whole < digits.size()) digits.erase(whole, 1);
    while (digits.size() > whole && digits.back() == '0') digits.pop_back();
  }
  char digit(size_t i) const { return i < digits.size() ? digits[i] : '0'; }
};

class Numbers {
 public:
  using Node = TextGrammar::Node;

  Numbers(TextGrammar& grammar, bool whole) : g_(grammar), whole_(whole) {}

  Node any() {
    Node end = 0;
    if (!whole_) {
      const Node power = digits(1, 2, 0), sign = g_.either(g_.text("+", power), g_.text("-", power));
      const Node signed_power = g_.either(power, sign);
      end = g_.either(0, g_.either(g_.text("e", signed_power), g_.text("E", signed_power)));
      end = g_.either(end, g_.text(".", digits(1, kMostDigits, end)));
    }
    const Node node = g_.either(g_.text("0", end), g_.range('1', '9', digits(0, kMostDigits - 1, end)));
    return g_.either(node, g_.text("-", node));
  }

  // Those of one sign, without it. -1: none.
  Node between(const std::optional<NumberLimit>& low, const std::optional<NumberLimit>& high, double sign) {
    const auto excludes_zero = [&](const NumberLimit& limit, double away) {
      return away * limit.value > 0 || (limit.value == 0 && limit.is_open);
    };
    if (high && excludes_zero(*high, -sign)) return -1;
    std::optional<Bound> least, most;
    if (low && excludes_zero(*low, sign)) least = Bound(*low, true);
    if (high) most = Bound(*high, false);
    Node node = -1;
    for (size_t length = 1; length <= kMostDigits; ++length) {
      if ((least && least->whole > length) || (most && most->whole < length)) continue;
      node = alternative(node, rest(0, length, least && least->whole == length ? &*least : nullptr,
                                   most && most->whole == length ? &*most : nullptr));
    }
    return node;
  }

  Node alternative(Node a, Node b) { return a < 0 ? b : b < 0 ? a : g_.either(a, b); }

 private:
  Node digits(int least, int most, Node next) {
    Node node = next;
    for (int i = most; i-- > 0;) {
      node = g_.range('0', '9', node);
      if (i >= least) node = g_.either(next, node);
    }
    return node;
  }

  // From the i-th digit on, of a number with `length` digits before the point. A bound is null if it is already met.
  Node rest(size_t i, size_t length, const Bound* low, const Bound* high) {
    if (low || high || i == 0) return make_rest(i, length, low, high);
    const auto [known, is_new] = free_.try_emplace(static_cast<int>(length) - static_cast<int>(i), 0);
    if (is_new) known->second = make_rest(i, length, low, high);
    return known->second;
  }

  Node make_rest(size_t i, size_t length, const Bound* low, const Bound* high) {
    const bool is_below = low && (low->is_open || i < low->digits.size());
    const bool is_beyond = high && high->is_open && i >= high->digits.size();
    const Node end = i >= length && !is_below && !is_beyond ? 0 : -1;
    if (i >= length && (whole_ || i == length + kMostDigits)) return end;
    Node more = -1;
    const auto add = [&](char first, char last, const Bound* below, const Bound* above) {
      const Node next = first > last ? -1 : rest(i + 1, length, below, above);
      if (next >= 0) more = alternative(more, g_.range(static_cast<uint8_t>(first), static_cast<uint8_t>(last), next));
    };
    char first = low ? low->digit(i) : i == 0 && length > 1 ? '1' : '0', last = high ? high->digit(i) : '9';
    if (first > last) return end;
    const bool both = low && high && first == last;
    if (low) add(first, first, low, both ? high : nullptr), ++first;
    if (high && !both) add(last, last, nullptr, high), --last;
    add(first, last, nullptr, nullptr);
    return alternative(end, i == length && more >= 0 ? g_.text(".", more) : more);
  }

  TextGrammar& g_;
  const bool whole_;
  std::map<int, Node> free_;  // texts whose bounds are met, by the digits that are left before the point
};
}  // namespace

TextGrammar::Node json_number(
    TextGrammar& grammar, bool whole, const std::optional<NumberLimit>& least, const std::optional<NumberLimit>& most) {
  Numbers numbers(grammar, whole);
  if (!least && !most) return numbers.any();
  const auto limit = [&](const std::optional<NumberLimit>& given, double up) {
    std::optional<NumberLimit> result = given;
    if (given && whole)
      result = {up * (given->is_open ? std::floor(up * given->value) + 1 : std::ceil(up * given->value)), false};
    return result;
  };
  const std::optional<NumberLimit> low = limit(least, 1), high = limit(most, -1);
  const TextGrammar::Node negative = numbers.between(high, low, -1);
  return numbers.alternative(numbers.between(low, high, 1), negative < 0 ? -1 : grammar.text("-", negative));
}
}  // namespace linnet
