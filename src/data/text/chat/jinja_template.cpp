#include "data/text/chat/jinja_template.h"
#include "base/error.h"
#include "data/text/chat/jinja_program.h"

namespace linnet::jinja {

Flow run(const std::vector<Statement>& statements, Scope& scope, std::string& out) {
  for (const Statement& statement : statements)
    if (const Flow flow = statement(scope, out); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Template::Template(const std::string& source, std::string name) : name_(std::move(name)) {
  int line = 1;
  try {
    program_ = std::make_unique<Program>(parse(source, line));
  } catch (const TemplateError& error) {
    fail_user(name_ + ", line " + std::to_string(line) + ": " + error.what);
  }
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

std::string Template::render(const Dict& variables, Cost* cost) const {
  Budget budget;
  const struct AtTheEnd {
    Budget& budget;
    Cost* cost;
    ~AtTheEnd() {
      if (cost) *cost = {Budget::kSteps - budget.steps, Budget::kBytes - budget.bytes};
      for (const Value& value : budget.namespaces) value.dict()->items.clear();
    }
  } at_the_end{budget, cost};
  Scope root{budget};
  root.root = &root;
  add_functions(root.names, budget);
  for (const auto& [name, value] : variables.items) root.names[name] = value;
  std::string text;
  try {
    run(program_->statements, root, text);
  } catch (const TemplateError& error) {
    fail_user(name_ + ", line " + std::to_string(root.line) + ": " + error.what);
  }
  return text;
}

}  // namespace linnet::jinja
