// Lets a text be one of a grammar: which tokens may come next, by what each adds to the text.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "generation/sampling.h"
#include "generation/text_grammar.h"

namespace linnet {

// What all tokens add to a text, as a tree of their bytes. It is made once for a vocabulary.
class TokenTexts {
 public:
  explicit TokenTexts(std::vector<std::string> texts);  // of each token; "": it is never allowed
  const std::string& operator[](int32_t token) const { return texts_[static_cast<size_t>(token)]; }
  size_t size() const { return texts_.size(); }

  // A byte of some texts that begin alike. Nodes lie as a walk meets them, those below before those beside.
  struct Node {
    uint8_t byte;
    int32_t end;          // behind the nodes below
    int32_t first, last;  // of tokens(): those whose text ends here
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  const std::vector<std::string> texts_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
};

// Of one text while it is written. States of the grammar's automaton are made when they are met; the sets of tokens of
// those that were met last are kept.
class TokenFilter {
 public:
  // `ends`: tokens that end a text, allowed where it is whole.
  TokenFilter(std::shared_ptr<const TextGrammar> grammar, std::shared_ptr<const TokenTexts> texts,
              std::vector<int32_t> ends);

  const TokenMask* allowed();  // null: no token of this vocabulary goes on
  void accept(int32_t token);
  bool finished() const;  // the text is whole and cannot go on

 private:
  static constexpr int32_t kUnknown = -1, kDead = -2;
  struct Branch {
    uint8_t low, high;
    int32_t target;  // a state, or kUnknown until it is asked for
  };
  struct State {
    std::vector<uint64_t> locations;  // nodes that read a byte, with what to return to; sorted
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
  void forget();

  const std::shared_ptr<const TextGrammar> grammar_;
  const std::shared_ptr<const TokenTexts> texts_;
  const std::vector<int32_t> ends_;
  std::vector<std::pair<int32_t, int32_t>> calls_;          // (node to return to, calls before it); 0: none
  std::map<std::pair<int32_t, int32_t>, int32_t> call_of_;  // positions in calls_
  std::vector<State> states_;
  std::map<std::vector<uint64_t>, int32_t> state_of_;  // by locations; a whole state's end in kWhole
  std::map<int32_t, TokenMask> masks_;                 // by state
  int32_t state_ = kDead;
};

}  // namespace linnet
