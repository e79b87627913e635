// A set of texts, as an automaton over bytes that reads one byte after another and calls subroutines. json_grammar.h
// makes those of JSON; TokenFilter walks through them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "base/error.h"
#include "base/json.h"

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

  // Each returns the node where a text begins that goes on with `next`. User error beyond kMost nodes.
  Node range(uint8_t low, uint8_t high, Node next) { return add({Kind::kRange, low, high, next}); }
  Node either(Node a, Node b) { return add({.kind = Kind::kEither, .next = a, .other = b}); }
  Node call(Node rule, Node next) {
    return next == kReturn ? rule : add({.kind = Kind::kCall, .next = next, .other = rule});
  }
  Node text(std::string_view bytes, Node next) {
    for (size_t i = bytes.size(); i-- > 0;)
      next = range(static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(bytes[i]), next);
    return next;
  }
  using Ranges = std::vector<std::pair<uint8_t, uint8_t>>;  // of one byte after another
  Node ranges(const Ranges& bytes, Node next) {
    for (size_t i = bytes.size(); i-- > 0;) next = range(bytes[i].first, bytes[i].second, next);
    return next;
  }
  // For loops: a node to go on with before it is known, which become() defines.
  Node later() { return add({}); }
  void become(Node node, Node same) {
    steps_[static_cast<size_t>(node)] = {.kind = Kind::kEither, .next = same, .other = same};
  }

  void begin_with(Node node) { begin_ = node; }
  Node begin() const { return begin_; }
  const Step& operator[](Node node) const { return steps_[static_cast<size_t>(node)]; }

 private:
  Node add(Step step) {
    if (steps_.size() == kMost) fail_user("it is too large: it has more than " + std::to_string(kMost) + " parts");
    steps_.push_back(step);
    return static_cast<Node>(steps_.size() - 1);
  }

  std::vector<Step> steps_{1};
  Node begin_ = kReturn;
};

// The JSON texts that fit a schema, as a grammar of their bytes.

// Any object: what a schema leaves open nests up to 16 levels deep.
TextGrammar json_object_grammar();

// Of JSON Schema: type (also several), properties, required, additionalProperties (true and false), items, enum, const,
// anyOf, true; titles, descriptions and the like say nothing. User error that names any other keyword and where it
// stands. The grammar has some of the texts that fit: an object has the properties that the schema names, in its
// order; numbers have at most 15 digits on either side of the point; white space is a blank or a line end with up to 20
// blanks.
TextGrammar json_schema_grammar(const Json& schema);

}  // namespace linnet
