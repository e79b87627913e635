// One text as its tokens come: decoded, and watched for the texts that stop it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "generation/causal_generator.h"
#include "tasks/generation/text_request.h"
#include "tasks/text_coder.h"

namespace linnet {

class WrittenRow {
 public:
  WrittenRow(std::unique_ptr<TextFlow> flow, std::vector<std::string> stops)
      : flow_(std::move(flow)), stops_(std::move(stops)) {}

  // The text that is now certain to belong to the result, often "". What may be the beginning of a stop text is held
  // back.
  std::string push(int32_t token) { return stopped_ ? "" : take(flow_->push(token), false); }
  std::string finish() { return stopped_ ? "" : take(flow_->finish(), true); }
  bool stopped() const { return stopped_; }          // a stop text came; the text ends before it
  const std::string& text() const { return text_; }  // all that push() and finish() returned

 private:
  std::string take(const std::string& piece, bool last);
  size_t held_back() const;  // bytes at the end of pending_ that may begin a stop text

  std::unique_ptr<TextFlow> flow_;
  const std::vector<std::string> stops_;
  std::string text_, pending_;
  bool stopped_ = false;
};

// `go_on`: nobody interrupted the writing.
WrittenText written_text(const Continuation& result, const WrittenRow& row, bool go_on);

}  // namespace linnet
