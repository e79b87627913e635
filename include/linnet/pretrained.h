// Encoders of model folders as transformers writes them, as parts of models of one's own.
//
//   struct Classifier : Module {
//     explicit Classifier(const std::string& folder) : bert{this, "bert", folder}, head{this, "head", bert.width(), 2}
//     {} PretrainedBert bert; Linear head;
//   };
#pragma once
#include <memory>
#include <string>

#include "linnet/learner.h"
#include "linnet/module.h"

namespace linnet {

// The encoder of a BERT folder (Devlin et al. 2019): config.json and model.safetensors.
class PretrainedBert : public Module {
 public:
  // Reads the configuration and the names of all weights, no data. Throws Error(kUser) naming the file and what is
  // missing, of another shape or not supported.
  PretrainedBert(Module* parent, std::string name, const std::string& folder);
  // Takes its parts.
  PretrainedBert(PretrainedBert&& other) noexcept;
  // Frees it.
  ~PretrainedBert() override;

  // tokens and types i32 [B, T], lengths i32 [B] (how many tokens count) -> states [B, T, width]. Without `types` every
  // token is of type 0.
  Tensor operator()(Tensor tokens, Tensor lengths, Tensor types = {});
  // The state of the first token through the folder's dense layer and tanh: states [B, T, width] -> [B, width].
  Tensor pooled(Tensor states);
  // Of a state.
  int64_t width() const;
  // The most tokens of a row.
  int64_t max_length() const;

  // Reads the folder's weights into a learner whose model this is a part of. Says which parameters were taken, which
  // the folder does not have, and which of its tensors are not used.
  LoadReport load(Learner& learner);
  // Writes a folder that transformers loads: the encoder with the learner's weights, configuration and tokenizer files,
  // and, in head.safetensors, all other parameters of the learner by name.
  void save(Learner& learner, const std::string& folder) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace linnet
