// The part of Jinja that chat templates use, as transformers sets it up: trim_blocks, lstrip_blocks, break and
// continue.
//
// Statements: for (with else and if), break, continue, if, set (also of a block, and of a namespace's member), macro,
// raw, generation. Expressions: all of Python's that Jinja has. Anything else is an error of one line that names it.
#pragma once
#include <memory>
#include <string>
#include "data/text/chat/jinja_value.h"

namespace linnet::jinja {

struct Program;  // what the parser makes of a source

// What a rendering took of its limits (Budget in jinja_value.h).
struct Cost {
  int64_t steps = 0, bytes = 0;
};

class Template {
 public:
  // User error with the line of a mistake; `name` begins the message.
  Template(const std::string& source, std::string name);

  // User error for what fails in rendering, for what the template itself refuses (raise_exception), and for a template
  // that takes more steps or memory than a conversation needs. `cost` is set in each case.
  std::string render(const Dict& variables, Cost* cost = nullptr) const;

 private:
  std::string name_;
  std::shared_ptr<const Program> program_;
};

}  // namespace linnet::jinja
