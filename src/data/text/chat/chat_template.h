// Formats a conversation as a chat model was trained on it, by the template of its folder.
#pragma once
#include <functional>
#include <string>
#include "base/json.h"
#include "data/text/chat/jinja_template.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
class ChatTemplate {
 public:
  // Reads chat_template.jinja of the folder, or "chat_template" of its tokenizer_config.json (of several, "default").
  // User error if there is none.
  ChatTemplate(const PretrainedTokenizer& tokenizer, const std::string& folder);

  // `messages`: a JSON list of {"role": ..., "content": ...}; a "developer" is the "system" of a template that knows
  // none. `begin_answer`: append the beginning of the assistant's answer. `tools`: a list of functions, or "".
  std::string render(const std::string& messages, bool begin_answer = true, const std::string& tools = "") const;
  // Whether it writes `tools`.
  bool knows_tools() const { return knows_tools_; }

 private:
  jinja::Dict tokens_;  // bos_token and the like
  jinja::Template template_;
  bool knows_developers_, knows_tools_;
};

// Returns OpenAI's messages as templates read them: a content of text parts is one text, and arguments of calls are
// JSON, not text that holds JSON. Calls fail(why), which must throw, unless each message has a role and, without calls,
// a content: fail("has a message of the role \"user\" without a \"content\"").
Json template_messages(const Json& messages, const std::function<void(const std::string&)>& fail);

jinja::Value template_value(const std::string& json);  // converts valid JSON text
}  // namespace linnet
