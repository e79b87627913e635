#include <bitset>
#include "base/text.h"
#include "generation/json_texts.h"

namespace linnet {
namespace {
constexpr int kMostNested = 50;
constexpr size_t kMostCountDigits = 6;  // of a number of repetitions

TextGrammar::Node character_beyond_ascii(TextGrammar& g, TextGrammar::Node next) {
  using Ranges = TextGrammar::Ranges;
  const std::pair<uint8_t, uint8_t> kNext{0x80, 0xBF};  // later bytes of a character in UTF-8
  TextGrammar::Node node = g.ranges({{0xC2, 0xDF}, kNext}, next);
  for (const Ranges& bytes : {Ranges{{0xE0, 0xE0}, {0xA0, 0xBF}, kNext}, Ranges{{0xE1, 0xEC}, kNext, kNext},
           Ranges{{0xED, 0xED}, {0x80, 0x9F}, kNext}, Ranges{{0xEE, 0xEF}, kNext, kNext},
           Ranges{{0xF0, 0xF0}, {0x90, 0xBF}, kNext, kNext}, Ranges{{0xF1, 0xF3}, kNext, kNext, kNext},
           Ranges{{0xF4, 0xF4}, {0x80, 0x8F}, kNext, kNext}})
    node = g.either(node, g.ranges(bytes, next));
  return node;
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

struct CharacterSet {
  std::bitset<128> ascii = {};
  bool has_others = false;  // all characters beyond ASCII
  bool lacks_some = false;  // of those: \w, \W and the like, of which languages differ
  int only = -1;            // if it was made of one character

  static CharacterSet of(char c) {
    CharacterSet set;
    set.add(c, c).only = c;
    return set;
  }
  CharacterSet& add(int first, int last) {
    for (int c = first; c <= last; ++c) ascii.set(static_cast<size_t>(c));
    return *this;
  }
};

const CharacterSet kWord = CharacterSet().add('0', '9').add('A', 'Z').add('_', '_').add('a', 'z');

class Pattern {
 public:
  using Node = TextGrammar::Node;

  Pattern(TextGrammar& grammar, std::string_view text) : g_(grammar), text_(text) {}

  Node whole() {
    const Node node = alternatives(0);
    if (!rest().empty()) fail("a \")\" too many");
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_user("the pattern \"", text_, "\": ", what); }

  std::string_view rest() const { return text_.substr(at_); }
  bool eat(std::string_view expected) {
    const bool found = rest().starts_with(expected);
    if (found) at_ += expected.size();
    return found;
  }
  char next() {
    if (rest().empty()) fail("it ends too early");
    return text_[at_++];
  }

  Node alternatives(int depth) {
    if (depth > kMostNested) fail("its groups nest too deeply");
    Node node = sequence(depth);
    while (eat("|")) node = g_.either(node, sequence(depth));
    return node;
  }

  Node sequence(int depth) {
    const auto ends = [&] { return rest().empty() || rest()[0] == '|' || rest()[0] == ')'; };
    const bool is_outer = depth == 0;
    std::vector<Node> parts;
    if (is_outer && !eat("^")) parts.push_back(json_characters(g_, 0));
    bool is_open = is_outer;
    while (is_open == is_outer && !ends()) {
      if (is_outer && eat("$")) is_open = false;
      else parts.push_back(repeated(atom(depth)));
    }
    if (!ends()) fail("\"$\" is supported at its end alone");
    if (is_open) parts.push_back(json_characters(g_, 0));
    Node node = 0;
    for (size_t i = parts.size(); i-- > 0;) node = g_.call(parts[i], node);
    return node;
  }

  size_t count() {
    const size_t digits = std::min(rest().find_first_not_of("0123456789"), rest().size());
    if (digits == 0 || digits > kMostCountDigits) fail("a wrong number of repetitions");
    at_ += digits;
    return std::stoul(std::string(text_.substr(at_ - digits, digits)));
  }

  Node repeated(Node part) {
    size_t least = 0;
    std::optional<size_t> most;
    if (eat("?")) most = 1;
    else if (eat("+")) least = 1;
    else if (eat("{")) {
      most = least = count();
      if (eat(",")) most = rest().starts_with("}") ? std::nullopt : std::optional(count());
      if (!eat("}") || (most && *most < least)) fail("a wrong number of repetitions");
    } else if (!eat("*")) return part;
    eat("?");                 // as few as possible, which are the same strings
    if (part == 0) return 0;  // nothing, however often
    Node node = 0;
    if (!most) {
      node = g_.later();
      g_.become(node, g_.either(0, g_.call(part, node)));
    }
    for (size_t i = most.value_or(least); i-- > 0;) {
      node = g_.call(part, node);
      if (i >= least) node = g_.either(0, node);
    }
    return node;
  }

  Node atom(int depth) {
    const size_t begin = at_;
    const char c = next();
    if (c == '(') {
      if (eat("?") && !eat(":")) fail("of groups only (...) and (?:...) are supported");
      const Node node = alternatives(depth + 1);
      if (!eat(")")) fail("a \")\" is missing");
      return node;
    }
    if (c == '[') return one_of(bracket());
    if (c == '.') return one_of(inverse(CharacterSet().add('\n', '\n').add('\r', '\r')));
    if (c == '\\') return one_of(escaped());
    if (std::string_view("^$*+?{").find(c) != std::string_view::npos)
      fail(std::string("\"") + c + "\" is not supported at this place");
    if (is_ascii(c)) return one_of(CharacterSet::of(c));
    while (!rest().empty() && (rest()[0] & 0xC0) == 0x80) ++at_;
    return g_.text(text_.substr(begin, at_ - begin), 0);
  }

  static CharacterSet inverse(const CharacterSet& set) {
    return {.ascii = ~set.ascii, .has_others = !set.has_others && !set.lacks_some};
  }

  // Behind a backslash. Classes have no characters beyond ASCII, of which languages differ.
  CharacterSet escaped() {
    const char c = next(), kind = lower_ascii(c);
    for (const auto& [letter, meaning] : {std::pair{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}})
      if (c == letter) return CharacterSet::of(meaning);
    CharacterSet set;
    if (kind == 'd') set.add('0', '9');
    else if (kind == 's') set.add('\t', '\r').add(' ', ' ');
    else if (kind == 'w') set = kWord, set.lacks_some = true;
    else if (!is_ascii(c) || kWord.ascii[static_cast<size_t>(c)]) fail(std::string("\"\\") + c + "\" is not supported");
    else return CharacterSet::of(c);
    if (c != kind) set.ascii.flip(), set.lacks_some = true;
    return set;
  }

  CharacterSet member() {
    const char c = next();
    if (!is_ascii(c)) fail("a class with characters beyond ASCII is not supported");
    return c == '\\' ? escaped() : CharacterSet::of(c);
  }

  // Behind "[".
  CharacterSet bracket() {
    const bool is_inverted = eat("^");
    CharacterSet set;
    while (!eat("]")) {
      const CharacterSet first = member();
      set.ascii |= first.ascii, set.lacks_some |= first.lacks_some;
      if (first.only < 0 || !rest().starts_with("-") || rest().starts_with("-]")) continue;
      ++at_;
      const CharacterSet last = member();
      if (last.only < first.only) fail("a wrong range of characters");
      set.add(first.only, last.only);
    }
    return is_inverted ? inverse(set) : set;
  }

  Node one_of(const CharacterSet& set) {
    std::vector<Node> nodes;
    for (const auto& [c, name] :
        {std::pair{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"}, {'\t', "\\t"}, {'\f', "\\f"}})
      if (set.ascii[static_cast<size_t>(c)]) nodes.push_back(g_.text(name, 0));
    const auto is_written = [&](int c) {
      return c < 0x7F && c != '"' && c != '\\' && set.ascii[static_cast<size_t>(c)];
    };
    for (int c = 0x20; c < 0x7F; ++c) {
      const int first = c;
      while (is_written(c)) ++c;
      if (c > first) nodes.push_back(g_.range(static_cast<uint8_t>(first), static_cast<uint8_t>(c - 1), 0));
    }
    if (set.has_others) nodes.push_back(character_beyond_ascii(g_, 0));
    if (nodes.empty()) fail("it has a class without characters");
    return g_.either(nodes);
  }

  TextGrammar& g_;
  const std::string_view text_;
  size_t at_ = 0;
};
}  // namespace

TextGrammar::Node json_character(TextGrammar& g, TextGrammar::Node next) {
  using Node = TextGrammar::Node;
  const auto hex = [&](Node then) {
    return g.either(g.range('0', '9', then), g.either(g.range('a', 'f', then), g.range('A', 'F', then)));
  };
  const Node two = hex(hex(next)), three = hex(two);
  Node escape = g.text("\"", next);
  for (const char* c : {"\\", "/", "b", "f", "n", "r", "t"}) escape = g.either(escape, g.text(c, next));
  // \uXXXX of a whole character: no surrogates, D800 to DFFF.
  for (const auto& [low, high] : {std::pair{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}})
    escape = g.either(escape, g.text("u", g.range(static_cast<uint8_t>(low), static_cast<uint8_t>(high), three)));
  for (const char* d : {"ud", "uD"}) escape = g.either(escape, g.text(d, g.range('0', '7', two)));
  Node node = g.either(g.text("\\", escape), character_beyond_ascii(g, next));
  for (const auto& [low, high] : {std::pair<uint8_t, uint8_t>{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}})
    node = g.either(node, g.range(low, high, next));
  return node;
}

TextGrammar::Node json_characters(TextGrammar& g, TextGrammar::Node next) {
  const TextGrammar::Node more = g.later();
  g.become(more, g.either(next, json_character(g, more)));
  return more;
}

TextGrammar::Node json_pattern(TextGrammar& grammar, std::string_view pattern) {
  return Pattern(grammar, pattern).whole();
}
}  // namespace linnet
