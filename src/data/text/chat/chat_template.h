// A conversation as the text that a chat model was trained on, by the template of its folder.
#pragma once
#include <string>
#include "data/text/chat/jinja_template.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

class ChatTemplate {
 public:
  // chat_template.jinja of the folder, or "chat_template" of its tokenizer_config.json (of several, the one called
  // "default"). User error when there is none.
  ChatTemplate(const PretrainedTokenizer& tokenizer, const std::string& folder);

  // `messages`: JSON, a list of {"role": ..., "content": ...}. With `begin_answer` the text ends with what begins the
  // assistant's answer. `tools`: a list of functions, or "".
  std::string render(const std::string& messages, bool begin_answer = true, const std::string& tools = "") const;

 private:
  jinja::Dict tokens_;  // bos_token and the like
  jinja::Template template_;
};

// What a template sees of a JSON text, which is valid.
jinja::Value template_value(const std::string& json);

}  // namespace linnet
