// A set of texts as an automaton over bytes with subroutines, and the tokens with which a text can stay in it.
#pragma once
#include <map>
#include <memory>
#include "base/fail.h"
#include "base/json.h"
#include "generation/sampling.h"

namespace linnet {
class TextGrammar {
 public:
  using Node = int32_t;
  static constexpr Node kReturn = 0;  // ends a subroutine, or the text
  static constexpr size_t kMost = 1 << 16;

  enum class Kind : uint8_t { kReturn, kRange, kEither, kCall };
  struct Step {
    Kind kind = Kind::kReturn;
    uint8_t low = 0, high = 0;  // kRange: the bytes that lead to `next`
    Node next = 0, other = 0;   // kEither: both; kCall: `other`, then `next`
  };

  // Each returns the first node of texts that continue with `next`. User error beyond kMost nodes.
  Node range(uint8_t low, uint8_t high, Node next) { return add({Kind::kRange, low, high, next}); }
  Node either(Node a, Node b) { return add({.kind = Kind::kEither, .next = a, .other = b}); }
  Node either(const std::vector<Node>& nodes) {  // at least one
    Node node = nodes[0];
    for (size_t i = 1; i < nodes.size(); ++i) node = either(node, nodes[i]);
    return node;
  }
  Node call(Node rule, Node next) {
    return next == kReturn ? rule : add({.kind = Kind::kCall, .next = next, .other = rule});
  }
  Node text(std::string_view bytes, Node next) {
    for (size_t i = bytes.size(); i-- > 0;)
      next = range(static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(bytes[i]), next);
    return next;
  }
  using Ranges = std::vector<std::pair<uint8_t, uint8_t>>;  // ranges of consecutive bytes
  Node ranges(const Ranges& bytes, Node next) {
    for (size_t i = bytes.size(); i-- > 0;) next = range(bytes[i].first, bytes[i].second, next);
    return next;
  }
  // For loops: a node used before become() defines it.
  Node later() { return add({}); }
  void become(Node node, Node same) { steps_[node] = {.kind = Kind::kEither, .next = same, .other = same}; }

  void begin_with(Node node) { begin_ = node; }
  Node begin() const { return begin_; }
  const Step& operator[](Node node) const { return steps_[node]; }

 private:
  Node add(Step step) {
    if (steps_.size() == kMost) fail_user("it is too large: it has more than ", kMost, " parts");
    steps_.push_back(step);
    return static_cast<Node>(steps_.size() - 1);
  }

  std::vector<Step> steps_{1};
  Node begin_ = kReturn;
};

// Any object; parts that a schema leaves open nest up to 16 levels.
TextGrammar json_object_grammar();

// Supports these JSON Schema keywords: type (also several), properties, required, additionalProperties (true, false or,
// without properties, a schema), items, prefixItems, minItems, maxItems, minLength, maxLength, pattern, format (date,
// time, date-time, uuid, ipv4; others say nothing), minimum, maximum and the exclusive ones, enum, const, anyOf, oneOf
// (as anyOf), allOf of one, $ref ("#/$defs/NAME", also of a schema that this is part of), true; ignores titles,
// descriptions and the like. User error naming any other keyword and its location. The grammar has some of the texts:
// properties are the schema's, in its order; numbers have at most 15 digits on either side of the point, and no
// exponent where they have limits; white space is a blank, or a line end with up to 20 blanks.
TextGrammar json_schema_grammar(const Json& schema);

// What tokens add to a text, as a tree of their bytes; made once for a vocabulary.
class TokenTexts {
 public:
  explicit TokenTexts(std::vector<std::string> texts);  // of each token; "": never allowed
  const std::string& operator[](int32_t token) const { return texts_[token]; }
  size_t size() const { return texts_.size(); }

  // A byte that some texts share. Nodes are in the order of a walk: children before siblings.
  struct Node {
    uint8_t byte;
    int32_t end;          // after the children
    int32_t first, last;  // in tokens(): those whose text ends here
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  const std::vector<std::string> texts_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
};

// Filters tokens of one text. Automaton states are made on demand, and the token sets of recent ones are kept.
class TokenFilter {
 public:
  // `ends`: tokens that end a text, allowed where it is complete.
  TokenFilter(
      std::shared_ptr<const TextGrammar> grammar, std::shared_ptr<const TokenTexts> texts, std::vector<int32_t> ends);

  const TokenMask* allowed();  // null: no token of this vocabulary is possible
  void accept(int32_t token);
  bool finished() const;  // the text is complete and cannot continue

 private:
  static constexpr int32_t kUnknown = -1, kDead = -2;
  struct Branch {
    uint8_t low, high;
    int32_t target;  // a state, or kUnknown until requested
  };
  struct State {
    std::vector<uint64_t> locations;  // nodes that read a byte, with return addresses; sorted
    std::vector<Branch> branches;     // sorted
    bool whole;
  };

  uint64_t location(int32_t node, int32_t calls) const {
    return static_cast<uint64_t>(calls) << 32 | static_cast<uint32_t>(node);
  }
  int32_t called_from(int32_t node, int32_t calls);
  int32_t state_of(std::vector<uint64_t> reached);
  int32_t advance(int32_t state, uint8_t byte);
  TokenMask find_allowed();
  void begin_token();

  const std::shared_ptr<const TextGrammar> grammar_;
  const std::shared_ptr<const TokenTexts> texts_;
  const std::vector<int32_t> ends_;
  std::vector<std::pair<int32_t, int32_t>> calls_;          // (node to return to, calls before it); 0: none
  std::map<std::pair<int32_t, int32_t>, int32_t> call_of_;  // positions in calls_
  std::vector<State> states_;
  std::map<std::vector<uint64_t>, int32_t> state_of_;  // by locations; complete ones end in kWhole
  std::map<int32_t, TokenMask> masks_;                 // by state
  int32_t state_ = kDead;
  size_t visited_ = 0, of_token_ = 0;  // nodes, since states were dropped and for this token
};
}  // namespace linnet
