// A PretrainedModule's state.
#pragma once
#include "linnet/pretrained.h"
#include "models/families/gguf.h"
#include "models/families/pretrained.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
struct PretrainedModule::State {
  // Throws Error(kUser) unless the folder's model is a Kind.
  template <class Kind> static std::unique_ptr<State> open(const std::string& folder, const OpenOptions& options = {}) {
    use_gguf_models();
    auto state = std::make_unique<State>(open_pretrained(folder, options));
    (void)state->model.as<Kind>();
    return state;
  }
  explicit State(PretrainedModel opened) : model(std::move(opened)), layout(*model.module) {}

  PretrainedModel model;
  ParameterLayout layout;  // with the folder's names, without this module's path
};
}  // namespace linnet
