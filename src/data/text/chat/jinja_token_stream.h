// The tokens of a template as a parser takes them.
#pragma once
#include <algorithm>
#include <string>
#include <vector>
#include "data/text/chat/jinja_program.h"

namespace linnet::jinja {

class TokenStream {
 protected:
  // `line` follows the tokens, for messages.
  TokenStream(std::vector<Token> tokens, int& line) : line_(line), tokens_(std::move(tokens)) { line_ = 1; }

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() {
    line_ = peek().line;
    return tokens_[std::min(at_++, tokens_.size() - 1)];
  }
  bool is_operator(const char* text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::kOperator && peek(ahead).text == text;
  }
  bool is_name(const char* text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::kName && peek(ahead).text == text;
  }
  bool take_operator(const char* text) { return is_operator(text) && (take(), true); }
  bool take_name(const char* text) { return is_name(text) && (take(), true); }
  void expect_operator(const char* text) {
    if (!take_operator(text)) fail(std::string("'") + text + "' is missing before " + describe());
  }
  std::string expect_name() {
    if (peek().kind != Token::kName) fail("a name is missing before " + describe());
    return take().text;
  }
  void expect(Token::Kind kind) {
    if (peek().kind != kind) fail("an unexpected " + describe());
    take();
  }
  std::string describe() {
    line_ = peek().line;
    switch (peek().kind) {
      case Token::kText: return "text";
      case Token::kVariableBegin: return "'{{'";
      case Token::kVariableEnd: return "'}}'";
      case Token::kBlockBegin: return "'{%'";
      case Token::kBlockEnd: return "'%}'";
      case Token::kEnd: return "end of the template";
      default: return "'" + peek().text + "'";
    }
  }
  // Counts nested expressions and blocks while it lives; an error beyond kDeepest.
  struct Nested {
    explicit Nested(int& nesting) : depth(nesting) {
      if (++depth > kDeepest) fail("it nests deeper than " + std::to_string(kDeepest) + " levels");
    }
    ~Nested() { --depth; }
    int& depth;
  };
  void put_back() { --at_; }

  int depth_ = 0;
  int& line_;

 private:
  static constexpr int kDeepest = 100;

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace linnet::jinja
